"""What the tests of the release matrix came to: read from JUnit XML, judged, and written down."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# The two halves of a proof: the defect shows on stock vLLM, and it does not on the overlay.
HALVES = ("stock", "overlay")


@dataclasses.dataclass(frozen=True)
class Test:
    """One test: the directory that it lies in, how it ended, and what it looked at."""

    name: str
    area: str
    outcome: str
    reason: str
    ran: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One patch (or other area) on one release.

    ``passed`` counts passed tests by half; a test that compares both counts for both.
    """

    release: str
    area: str
    passed: Mapping[str, int]
    failed: tuple[str, ...]
    skipped: Mapping[str, int]
    hole: str | None

    def text(self) -> str:
        """Return it as short as a table wants it."""
        if self.failed:
            return f"{len(self.failed)} failed"
        if self.hole:
            return "hole" if self.passed.get("overlay") or self.passed.get("stock") else "-"
        return " / ".join(str(self.passed[half]) for half in HALVES)


def read(path: Path) -> list[Test]:
    """Read pytest's JUnit XML.

    Raises:
        OSError, xml.etree.ElementTree.ParseError: if there is none, or not a whole one.
    """
    tests = []
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 - pytest wrote it, a moment ago
        outcome, reason = "passed", ""
        for kind in ("skipped", "failure", "error"):
            found = case.find(kind)
            if found is not None:
                outcome = "skipped" if kind == "skipped" else "failed"
                reason = found.get("message", "")
        ran = {p.get("value", "") for p in case.iter("property") if p.get("name") == "ran"}
        parts = case.get("classname", "").split(".")
        area = parts[2 if parts[:2] == ["tests", "patches"] else 1] if len(parts) > 2 else parts[0]
        tests.append(
            Test(case.get("name", ""), area.replace("_", "-"), outcome, reason, tuple(sorted(ran)))
        )
    return tests


def judge(release: str, area: str, tests: Iterable[Test], needed: Sequence[str] = HALVES) -> Cell:
    """Judge the tests of one area on one release; ``needed`` halves without a pass are a hole."""
    mine = [test for test in tests if test.area == area]
    passed = {
        half: sum(test.outcome == "passed" and half in test.ran for test in mine) for half in HALVES
    }
    skipped: dict[str, int] = {}
    for test in mine:
        if test.outcome == "skipped":
            skipped[test.reason] = skipped.get(test.reason, 0) + 1
    missing = [half for half in needed if not passed[half]]
    hole = f"no test passed on {' or '.join(missing)}" if missing else None
    failed = tuple(test.name for test in mine if test.outcome == "failed")
    return Cell(release, area, passed, failed, skipped, hole)


def holes(cells: Iterable[Cell]) -> list[str]:
    """Say what keeps the matrix from being whole, a line each."""
    lines = []
    for cell in cells:
        where = f"{cell.area} on vLLM {cell.release}"
        lines += [f"{where}: {name} failed" for name in cell.failed]
        if cell.hole and not cell.failed:
            lines.append(f"{where}: {cell.hole}")
    return lines


def rows(cells: Sequence[Cell]) -> list[list[str]]:
    """Lay cells out as areas by releases, with a head."""
    releases = list(dict.fromkeys(cell.release for cell in cells))
    areas = list(dict.fromkeys(cell.area for cell in cells))
    found = {(cell.area, cell.release): cell.text() for cell in cells}
    body = [[area, *(found.get((area, release), "") for release in releases)] for area in areas]
    return [["stock / overlay", *releases], *body]


def plain(table: Sequence[Sequence[str]]) -> str:
    """Write a table for a terminal."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def markdown(table: Sequence[Sequence[str]], cells: Iterable[Cell]) -> str:
    """Write a table as Markdown, with every skip's reason and every hole below it."""
    lines = [f"| {' | '.join(row)} |" for row in table]
    lines.insert(1, f"|{' --- |' * len(table[0])}")
    notes: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for reason in cell.skipped:
            where = notes.setdefault((cell.area, reason), [])
            where.append(f"{cell.release} ({cell.skipped[reason]})")
    skipped = [
        f"- skipped, {area} on {', '.join(where)}: {why}" for (area, why), where in notes.items()
    ]
    return "\n".join([*lines, "", *skipped, *(f"- **{hole}**" for hole in holes(cells)), ""])


def machine(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Give cells as what JSON can hold."""
    return [dataclasses.asdict(cell) for cell in cells]
