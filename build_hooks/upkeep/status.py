"""The patch x release table: from the locks, or worked out against other bases."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from build_hooks.assembly.assemble import assemble
from build_hooks.errors import ConflictError
from build_hooks.files import sha256
from build_hooks.queues import lock
from build_hooks.shared import outcomes, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.version import Version

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, Queue
    from build_hooks.queues.stack import Stack


@dataclass(frozen=True)
class Cell:
    """One patch on one base.

    Attributes:
        patch: The id of the patch.
        base: The version of the base.
        outcome: One of the words of a build or of a table, in ``outcomes``.
        remark: The reason, the note, or what to do next.
        level: How the release allows the patch to be proven, a word of ``PROOFS``; empty for a base
            that is no supported release, and where there is nothing to prove.
    """

    patch: str
    base: str
    outcome: str
    remark: str = ""
    level: str = ""


def from_locks(queue: Queue) -> list[Cell]:
    """Read the table from the locks of the supported releases.

    Args:
        queue: The queue.

    Returns:
        The cells, release by release; a diff that has changed since it was locked is stale.

    Raises:
        LockError: if a lock cannot be read.
    """
    cells = malformed(queue, [str(release) for release in queue.releases])
    for release in queue.releases:
        known = lock.load(queue.directory, release)
        locked = known.content["patches"] if known else {}
        for patch in queue.patches:
            if known is None:
                cells.append(
                    Cell(patch.id, str(release), outcomes.UNLOCKED, f"lock {release} is missing")
                )
            else:
                cell = _cell(patch, release, locked.get(patch.id, {}))
                if cell.outcome == outcomes.APPLIED:
                    cell = replace(cell, level=queue.proven(release, patch))
                cells.append(cell)
    return cells


def _cell(patch: Patch, release: Version, entry: dict[str, Any]) -> Cell:
    diff = patch.diff(release) if patch.needed(release) else None
    if entry.get("sha256") != (sha256(diff.text) if diff else None) or not entry:
        remark = f"changed since it was locked: python -m build_hooks lock {release}"
        return Cell(patch.id, str(release), outcomes.STALE, remark)
    remark = entry.get("reason") or entry.get("note") or ""
    return Cell(patch.id, str(release), entry["outcome"], remark)


def malformed(queue: Queue, bases: Sequence[str]) -> list[Cell]:
    """Return the cells of the patches that break the format.

    Args:
        queue: The queue.
        bases: The names of the bases.
    """
    return [
        Cell(id_, base, outcomes.MALFORMED, str(problems[0]))
        for id_, problems in queue.faults.items()
        for base in bases
        if id_
    ]


def against(stack: Stack, bases: Iterable[Base]) -> list[Cell]:
    """Apply the queues to each base and tell what every patch comes to.

    Args:
        stack: The queues.
        bases: The bases.
    """
    bases = list(bases)
    names = [str(base.version) for base in bases]
    cells = [cell for queue in stack.queues for cell in malformed(queue, names)]
    for base, name in zip(bases, names, strict=True):
        try:
            overlay = assemble(stack, base)
        except ConflictError as error:
            faults = {c.patch: str(c) for c in reversed(error.conflicts)}
        else:
            faults = {}
            cells += [
                Cell(o.patch.id, name, o.outcome, o.reason or o.note) for o in overlay.outcomes
            ]
            continue
        for patch in stack.patches:
            if patch.id in faults:
                cells.append(Cell(patch.id, name, outcomes.CONFLICT, faults[patch.id]))
            elif patch.needed(base.version):
                cells.append(Cell(patch.id, name, outcomes.APPLIED))
            else:
                cells.append(Cell(patch.id, name, outcomes.NOT_NEEDED, patch.reason(base.version)))
    return cells


def good(cells: Sequence[Cell]) -> bool:
    """Tell whether a build of every base in the table would succeed.

    Args:
        cells: The table.
    """
    return all(cell.outcome in outcomes.BUILT for cell in cells)


def as_json(cells: Sequence[Cell]) -> list[dict[str, str]]:
    """Return one object for each cell.

    Args:
        cells: The table.
    """
    return [asdict(cell) for cell in cells]


def as_text(cells: Sequence[Cell]) -> str:
    """Return the table for a terminal, and below it each remark once.

    Args:
        cells: The table.
    """
    header, rows, remarks = _grid(cells)
    width = tables.terminal_width()
    wrapped = [line for remark in remarks for line in tables.wrap(remark, width)]
    return "\n".join([tables.render(header, rows), *(["", *wrapped] if wrapped else [])]) + "\n"


def as_markdown(cells: Sequence[Cell]) -> str:
    """Return the table as Markdown, and below it each remark once.

    Args:
        cells: The table.
    """
    header, rows, remarks = _grid(cells)
    lines = [header, ["---"] * len(header), *rows]
    text = "\n".join(markdown_row(line) for line in lines)
    notes = "\n".join(f"- {_one_line(remark)}" for remark in remarks)
    return f"{text}\n\n{notes}\n" if notes else f"{text}\n"


def markdown_row(cells: Sequence[str]) -> str:
    """Write one row of a Markdown table.

    Args:
        cells: The cells, of any text.

    Returns:
        The row, without a line end.
    """
    return f"| {' | '.join(_escape(_one_line(cell)) for cell in cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escape(text: str) -> str:
    """Keep a pipe from ending a cell; a backslash before it stays one."""
    return re.sub(r"(\\*)\|", lambda found: found[1] * 2 + r"\|", text)


def _grid(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]], list[str]]:
    bases = list(dict.fromkeys(cell.base for cell in cells))
    patches = list(dict.fromkeys(cell.patch for cell in cells))
    by_place = {(cell.patch, cell.base): cell for cell in cells}
    rows = [[p, *(by_place[p, base].outcome for base in bases)] for p in patches]
    where: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.remark:
            where.setdefault((cell.patch, cell.remark), []).append(cell.base)
    # In the order of the rows; of one patch, in the order of the columns.
    ordered = sorted(where.items(), key=lambda item: patches.index(item[0][0]))
    remarks = [f"{p} on {', '.join(on)}: {remark}" for (p, remark), on in ordered]
    return ["patch", *bases], rows, remarks
