"""Judges the tests of the release matrix: a cell is one patch, or the engine, on one release."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from harness import environments, junit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The two halves of a proof: the defect shows on stock vLLM, and it does not on the overlay.
HALVES = ("stock", "overlay")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One patch (or other area) on one release.

    Attributes:
        release: The vLLM release.
        area: The patch's id, or "engine".
        passed: How many tests passed, by half; a test that compares both counts for both.
        failed: The names of the tests that failed.
        skipped: How many tests were skipped, by reason.
        hole: What the proof lacks; None if it is whole.
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
            return "hole" if any(self.passed.values()) else "-"
        return " / ".join(str(self.passed[half]) for half in HALVES)


def area(case: junit.Case) -> str:
    """Return what a test is about: the directory that it lies in, spelled as a patch's id is."""
    parts = case.module.split(".")
    below = 2 if parts[:2] == ["tests", "patches"] else 1
    return parts[below if len(parts) > 2 else 0].replace("_", "-")


def judge(
    release: str, name: str, cases: Iterable[junit.Case], needed: Sequence[str] = HALVES
) -> Cell:
    """Judge the tests of one area on one release.

    Args:
        release: The vLLM release.
        name: The area.
        cases: Tests, of this area and of others.
        needed: The halves of which at least one test has to pass.
    """
    mine = [case for case in cases if area(case) == name]
    passed = {
        half: sum(case.outcome == junit.PASSED and half in case.values("ran") for case in mine)
        for half in HALVES
    }
    skipped: dict[str, int] = {}
    for case in mine:
        if case.outcome == junit.SKIPPED:
            skipped[case.reason] = skipped.get(case.reason, 0) + 1
    missing = [half for half in needed if not passed[half]]
    hole = f"no test passed on {' or '.join(missing)}" if missing else None
    failed = tuple(case.name for case in mine if case.outcome == junit.FAILED)
    return Cell(release, name, passed, failed, skipped, hole)


def all_skipped(name: str, cases: Iterable[junit.Case]) -> bool:
    """Tell whether an area has tests, and each of them was skipped.

    Args:
        name: The area.
        cases: Tests, of this area and of others.
    """
    mine = [case.outcome for case in cases if area(case) == name]
    return bool(mine) and set(mine) == {junit.SKIPPED}


def holes(cells: Iterable[Cell]) -> list[str]:
    """Say what keeps the matrix from being whole, a line each."""
    lines = []
    for cell in cells:
        where = f"{cell.area} on vLLM {cell.release}"
        lines += [f"{where}: {name} failed" for name in cell.failed]
        if cell.hole and not cell.failed:
            lines.append(f"{where}: {cell.hole}")
    return lines


def table(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Lay cells out as areas by releases.

    Returns:
        The header, and the rows.
    """
    releases = list(dict.fromkeys(cell.release for cell in cells))
    areas = list(dict.fromkeys(cell.area for cell in cells))
    found = {(cell.area, cell.release): cell.text() for cell in cells}
    rows = [[name, *(found.get((name, release), "") for release in releases)] for name in areas]
    return ["stock / overlay", *map(_named, releases)], rows


def _named(release: str) -> str:
    """Name a release, with its level of proof where that is not a real engine."""
    level = environments.level(release) if release in environments.RELEASES else "engine"
    return release if level == "engine" else f"{release} ({level})"


def markdown(cells: Sequence[Cell]) -> str:
    """Write the table as Markdown, with every skip's reason and every hole below it."""
    header, rows = table(cells)
    lines = [_markdown_row(row) for row in [header, ["---"] * len(header), *rows]]
    notes: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        for reason, number in cell.skipped.items():
            notes.setdefault((cell.area, reason), []).append(f"{cell.release} ({number})")
    skipped = [
        f"- skipped, {name} on {', '.join(where)}: {why}" for (name, why), where in notes.items()
    ]
    return "\n".join([*lines, "", *skipped, *(f"- **{hole}**" for hole in holes(cells)), ""])


def _markdown_row(cells: Iterable[str]) -> str:
    escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def machine(cells: Iterable[Cell]) -> list[dict[str, Any]]:
    """Give cells as what JSON can hold."""
    return [dataclasses.asdict(cell) for cell in cells]
