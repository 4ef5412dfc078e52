"""Tables of plain text that fit the terminal: the one writer for the wheel, the build and CI.

It imports nothing of this package, because the build loads it by its path (``build_hooks.shared``).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Characters a line where the output is not a terminal: a file, a pipe, the log of a CI job.
PLAIN_WIDTH = 100
_GAP = 2
# Columns are not made narrower than this while the table fits.
_NARROWEST = 8
_INDENT = 4
# A word that is longer than its column is broken behind one of these, if it has one.
_BREAKS = re.compile(r"[^/_.,=-]*[/_.,=-]?")


class Row(NamedTuple):
    """A row with remarks.

    Attributes:
        cells: The text of each column.
        notes: Remarks, each of which is wrapped below the row over the whole width.
    """

    cells: Sequence[str]
    notes: Sequence[str] = ()


def render(
    header: Sequence[str],
    rows: Sequence[Row | Sequence[str]],
    *,
    width: int | None = None,
) -> str:
    """Align columns to the left, with a rule below the header.

    A cell may have several lines. Where the columns do not fit, the widest of them are wrapped. No
    line is longer than ``width``, unless that is less than a character a column.

    Args:
        header: The names of the columns.
        rows: The cells of each row, with remarks where a row is a ``Row``.
        width: Characters a line; None for those of the terminal, or ``PLAIN_WIDTH``.

    Returns:
        The table, without a line end after its last line.
    """
    limit = terminal_width() if width is None else width
    table = [row if isinstance(row, Row) else Row(row) for row in rows]
    widths = _column_widths([header, *(row.cells for row in table)], limit)
    lines = [*_lines(header, widths), (" " * _GAP).join("-" * column for column in widths)]
    for row in table:
        lines += _lines(row.cells, widths)
        for note in row.notes:
            lines += [(" " * _INDENT + line).rstrip() for line in wrap(note, limit - _INDENT)]
    return "\n".join(lines)


def fits(text: str, beside: Sequence[int], *, width: int | None = None) -> bool:
    """Tell whether a text fits into the last cell of a row, on one line.

    Args:
        text: The text.
        beside: The widths of the columns before it, in characters.
        width: Characters a line; None for those of the terminal, or ``PLAIN_WIDTH``.

    Returns:
        Whether it fits. If it does not, it can be a remark below the row.
    """
    limit = terminal_width() if width is None else width
    return "\n" not in text and len(text) <= limit - sum(column + _GAP for column in beside)


def terminal_width() -> int:
    """Tell how wide standard output is.

    Returns:
        Characters a line: the value of ``COLUMNS`` where that is set, else the width of the
        terminal, else ``PLAIN_WIDTH``.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        # Python 3.10 gives the 0 of a terminal that does not know its width.
        return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns or PLAIN_WIDTH
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        return PLAIN_WIDTH
    return columns if columns > 0 else PLAIN_WIDTH


def fold(text: str) -> str:
    """Break a text that stands beside a table into lines that fit the terminal.

    Args:
        text: The text.

    Returns:
        The text, without a line end after its last line.
    """
    return "\n".join(wrap(text, terminal_width()))


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines, at blanks where it has some.

    Args:
        text: The text. Its own line ends stay, and so does the indentation of its lines.
        width: Characters a line, at most.

    Returns:
        The lines, at least one.
    """
    width = max(width, 1)
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        indent = " " * min(len(paragraph) - len(paragraph.lstrip(" ")), width // 2)
        line = indent
        for word in paragraph.split():
            for piece in _pieces(word, width - len(indent)):
                gap = " " if line.strip() else ""
                if line.strip() and len(line) + len(gap) + len(piece) > width:
                    lines.append(line)
                    line, gap = indent, ""
                line += gap + piece
        lines.append(line)
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """Give a word whole, or in pieces if it is longer than a line."""
    while len(word) > width:
        end = 0
        for match in _BREAKS.finditer(word):
            if match.end() > width:
                break
            end = match.end()
        end = end or width
        yield word[:end]
        word = word[end:]
    if word:
        yield word


def _column_widths(rows: Sequence[Sequence[str]], limit: int) -> list[int]:
    """Give each column the width of its longest line; where that is too much, cap the widest."""
    widths = [
        max(len(line) for row in rows for line in row[column].splitlines() or [""])
        for column in range(len(rows[0]))
    ]
    available = limit - _GAP * (len(widths) - 1)
    narrowest = max(1, min(_NARROWEST, available // max(1, len(widths))))
    cap = max(widths, default=0)
    while sum(min(width, cap) for width in widths) > available and cap > narrowest:
        cap -= 1
    return [min(width, cap) for width in widths]


def _lines(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    columns = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max((len(column) for column in columns), default=0)):
        parts = (
            (column[number] if number < len(column) else "").ljust(width)
            for column, width in zip(columns, widths, strict=True)
        )
        yield (" " * _GAP).join(parts).rstrip()
