"""Tables of plain text: they fit the width that they are given, and lose nothing of a cell."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_nemo._overlay import tables
from vllm_nemo._overlay.tables import Row, render, wrap

SOURCES = Path(tables.__file__).parent.parent.parent


def test_columns_are_aligned_below_a_rule() -> None:
    rows = [("first", "ok"), ("the second", "changed")]
    assert render(("name", "state"), rows, width=100) == (
        "name        state\n----------  -------\nfirst       ok\nthe second  changed"
    )


def test_without_rows_there_is_a_header() -> None:
    assert render(("name", "state"), [], width=100) == "name  state\n----  -----"


def test_cells_may_be_empty_and_of_several_lines() -> None:
    rows = [("", "one\ntwo"), ("second", "")]
    assert render(("name", "state"), rows, width=100).splitlines()[2:] == [
        "        one",
        "        two",
        "second",
    ]


def test_the_widest_column_is_wrapped_at_blanks() -> None:
    rows = [("short", "a sentence of some words", "ok")]
    assert render(("name", "detail", "state"), rows, width=28).splitlines() == [
        "name   detail          state",
        "-----  --------------  -----",
        "short  a sentence of   ok",
        "       some words",
    ]


def test_remarks_stand_below_their_row_over_the_whole_width() -> None:
    rows = [Row(("first", "ok"), ["wrapped where it is too long"]), ("second", "ok")]
    assert render(("name", "state"), rows, width=20).splitlines() == [
        "name    state",
        "------  -----",
        "first   ok",
        "    wrapped where it",
        "    is too long",
        "second  ok",
    ]


def test_a_remark_keeps_its_lines_and_their_indentation() -> None:
    rows = [Row(("vllm",), ["Run one of these, which are long:\n  first command\n\n  second"])]
    assert render(("check",), rows, width=30).splitlines()[2:] == [
        "vllm",
        "    Run one of these, which",
        "    are long:",
        "      first command",
        "",
        "      second",
    ]


@pytest.mark.parametrize(
    ("word", "width", "lines"),
    [
        ("/opt/site-packages/vllm", 12, ["/opt/site-", "packages/", "vllm"]),
        ("vllm.models.radio", 12, ["vllm.models.", "radio"]),
        ("NRL_VLLM_OVERLAY=off", 17, ["NRL_VLLM_OVERLAY=", "off"]),
        ("a" * 10, 4, ["aaaa", "aaaa", "aa"]),
        ("see /opt/site-packages", 16, ["see /opt/site-", "packages"]),
    ],
)
def test_a_word_that_is_too_long_is_broken_behind_a_separator(
    word: str, width: int, lines: list[str]
) -> None:
    assert wrap(word, width) == lines


def test_a_word_that_fits_on_a_line_is_not_broken() -> None:
    assert wrap("in /opt/site-packages", 20) == ["in", "/opt/site-packages"]


# Whatever the cells are: the width holds, and every character is in its column.

TEXT = st.text(st.sampled_from("ab /._=-\n"), max_size=60)
TABLES = st.integers(1, 6).flatmap(
    lambda columns: st.tuples(
        st.lists(st.text("ab", min_size=1, max_size=12), min_size=columns, max_size=columns),
        st.lists(TEXT, min_size=columns, max_size=columns),
        st.lists(TEXT, max_size=3),
    )
)


def _solid(text: str) -> str:
    return "".join(text.split())


@given(TABLES, st.integers(20, 120))
def test_it_fits_and_loses_nothing(
    table: tuple[list[str], list[str], list[str]], width: int
) -> None:
    header, cells, notes = table
    plain = render(header, [cells], width=width).splitlines()
    (rule,) = [number for number, line in enumerate(plain) if line and not line.strip("- ")][:1]
    columns = [len(part) for part in plain[rule].split("  ")]
    start = 0
    for column, (name, cell) in zip(columns, zip(header, cells, strict=True), strict=True):
        places = slice(start, start + column)
        assert _solid("".join(line[places] for line in plain[:rule])) == _solid(name)
        assert _solid("".join(line[places] for line in plain[rule + 1 :])) == _solid(cell)
        start += column + 2
    lines = render(header, [Row(cells, notes)], width=width).splitlines()
    assert lines[: len(plain)] == plain
    below = lines[len(plain) :]
    assert all(line == "" or line.startswith("    ") for line in below)
    assert _solid("".join(below)) == _solid("".join(notes))
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_table_of_many_columns_fits_a_log() -> None:
    releases = [f"0.{number}.0" for number in range(20, 40)]
    rows = [("glm-dsa-sequence-parallel-moe", *["not-needed"] * len(releases))]
    lines = render(("patch", *releases), rows, width=100).splitlines()
    assert max(map(len, lines)) <= 100


# How wide the output is.

ASKED = "from vllm_nemo._overlay.tables import terminal_width; print(terminal_width())"


def _environment(columns: str | None) -> dict[str, str]:
    chosen = {} if columns is None else {"COLUMNS": columns}
    return {**os.environ, **chosen, "PYTHONPATH": str(SOURCES)}


@pytest.mark.parametrize(
    ("columns", "width"),
    [(None, 100), ("72", 72), ("140", 140), ("", 100), ("0", 100), ("-5", 100), ("²", 100)],
)
def test_the_width_of_a_pipe(columns: str | None, width: int) -> None:
    command = [sys.executable, "-c", ASKED]
    told = subprocess.check_output(command, env=_environment(columns), text=True)
    assert int(told) == width


@pytest.mark.parametrize(
    ("terminal", "columns", "width"), [(57, None, 57), (57, "72", 72), (0, None, 100)]
)
def test_the_width_of_a_terminal(terminal: int, columns: str | None, width: int) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, terminal, 0, 0))
        command = [sys.executable, "-c", ASKED]
        subprocess.run(command, env=_environment(columns), stdout=theirs, check=True)
        assert int(os.read(ours, 100)) == width
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_fits_into_the_last_cell() -> None:
    assert tables.fits("x" * 80, [10, 6], width=100)
    assert not tables.fits("x" * 81, [10, 6], width=100)
    assert not tables.fits("two\nlines", [10, 6], width=100)
    row = render(("a" * 10, "b" * 6, "c"), [("", "", "x" * 80)], width=100).splitlines()[-1]
    assert row == " " * 20 + "x" * 80
