"""What benchmarks/ makes of commands and of pyperf's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyperf
import pytest

from benchmarks import command, measure, page
from benchmarks.measure import Case

ROOT = Path(__file__).parents[2]
PAGE = """\
# A page

<!-- benchmarks: machine -->
<!-- end -->

What a start is: \\1, \\g<0>.

<!-- benchmarks: starts -->
of an earlier run
<!-- end -->

By hand.
"""


@pytest.fixture
def section(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def case(way: str, code: str) -> Case:
    return Case("start", way, [sys.executable, "-c", code], {"PATH": "/usr/bin:/bin"})


def test_the_table_has_every_way_with_its_spread(
    section: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for values in ([1.0, 2.0], [4.0, 3.0, 5.0]):
        measure.add(section, "start", "stock", values, warmups=[60.0])
    measure.add(section, "start", "overlay", [0.006], versions={"vllm-nemo": "0.29.0.7"})
    measure.add(section, "start, instructions", "overlay", [12_816_400_000], unit="integer")
    measure.add(section, "memory", "overlay", [3 << 29], unit="byte")
    rows = [
        ["start", "stock", "5", "3.00 sec", "2.00 sec to 4.00 sec", ""],
        ["", "overlay", "1", "6.00 ms", "", "0.002"],
        ["start, instructions", "overlay", "1", "12816.4 million", "", ""],
        ["memory", "overlay", "1", "1536.0 MiB", "", ""],
    ]
    assert page.rows(section) == rows
    assert page.terminal(section).splitlines()[2].split() == " ".join(rows[0]).split()
    tables = page.tables(section.parent, ["starts"])
    assert cells(tables["starts"])[2:] == rows
    assert ["vllm-nemo", "0.29.0.7"] in cells(tables["machine"])
    date = pyperf.BenchmarkSuite.load(str(section / "overlay.json")).get_dates()[0].date()
    assert tables["starts"].startswith(f"Measured on {date}.\n\n|")


def test_a_table_takes_the_place_of_the_one_that_the_page_had() -> None:
    filled = page.fill(PAGE, {"starts": "| new |\\2 |", "machine": "| a CPU |"})
    assert filled == PAGE.replace("of an earlier run", "| new |\\2 |").replace(
        "machine -->\n", "machine -->\n| a CPU |\n"
    )
    assert page.fill(
        filled, {"starts": "of an earlier run", "machine": "| a CPU |"}
    ) == PAGE.replace("machine -->\n", "machine -->\n| a CPU |\n")


def test_the_projects_page_has_a_place_for_every_table() -> None:
    tables = dict.fromkeys(("machine", *command.SECTIONS), "| new |")
    assert page.fill(command.PAGE.read_text(), tables).count("\n| new |\n") == len(tables)


@pytest.mark.parametrize("name", ["builds", "starts"])
def test_a_table_without_one_place_is_an_error(name: str) -> None:
    text = PAGE + "<!-- benchmarks: starts -->\n<!-- end -->\n"
    with pytest.raises(ValueError, match=f"needs one <!-- benchmarks: {name} -->"):
        page.fill(text, {name: "| new |"})


def test_a_section_that_was_not_measured_is_no_empty_table(section: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run `benchmarks/run starts` first"):
        page.tables(section.parent, ["starts"])


def test_commands_take_turns(section: Path, tmp_path: Path) -> None:
    order = tmp_path / "order"
    ways = {"stock": "s", "overlay": "o"}
    cases = [
        case(way, f"open({str(order)!r}, 'a').write({letter!r})") for way, letter in ways.items()
    ]
    measure.time_processes(section, cases, turns=2, loops=3)
    assert order.read_text() == "so" + "sssooo" * 2
    assert [row[1:3] for row in page.rows(section)] == [["stock", "2"], ["overlay", "2"]]


def test_a_command_that_fails_shows_what_it_printed(section: Path) -> None:
    with pytest.raises(RuntimeError, match=r"failed \(3\):\nno such model"):
        measure.time_processes(section, [case("stock", "print('no such model'); exit(3)")], turns=1)
    assert not section.exists()


def test_the_instructions_of_a_process_are_counted_without_those_of_its_children(
    section: Path, tmp_path: Path
) -> None:
    """A stand-in for Valgrind writes a file for the process and one for a child, as it does."""
    valgrind = tmp_path / "bin" / "valgrind"
    valgrind.parent.mkdir()
    valgrind.write_text(
        "#!/bin/sh\n"
        "for option; do case $option in --cachegrind-out-file=*) out=${option#*=}; esac; done\n"
        'echo "summary: 7000000" > "${out%%%p}$$"\n'
        'echo "summary: 1000000" > "${out%%%p}1$$"\n'
    )
    valgrind.chmod(0o755)
    env = {"PATH": f"{valgrind.parent}:/usr/bin:/bin"}
    measure.count_instructions(section, [Case("start", "stock", ["true"], env)])
    assert page.rows(section) == [["start, instructions", "stock", "1", "7.0 million", "", ""]]


@pytest.mark.parametrize("options", [["no-such-section"], ["--write", "builds"], ["--vllm", "0.1"]])
def test_what_makes_no_sense_is_refused_at_once(options: list[str]) -> None:
    run = [sys.executable, ROOT / "benchmarks" / "run", *options]
    process = subprocess.run(run, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].startswith("benchmarks/run: error:")
