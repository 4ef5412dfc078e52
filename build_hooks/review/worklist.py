"""Everything that a person has to look at on a base, as one list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import assemble
from build_hooks.errors import ConflictError
from build_hooks.review.conditions import met
from build_hooks.review.drift import drift
from build_hooks.review.findings import findings
from build_hooks.review.names import missing
from build_hooks.shared import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from build_hooks.bases.base import Base
    from build_hooks.queues.stack import Stack

FUNCTION, NAME, FINDING, CONDITION = "function", "name", "finding", "can go"


@dataclass(frozen=True)
class Item:
    """One thing to look at.

    Attributes:
        kind: ``FUNCTION``, ``NAME``, ``FINDING`` or ``CONDITION``.
        where: The place: a module and a function, a file and a line, a patch.
        what: What is to be seen there.
    """

    kind: str
    where: str
    what: str


def worklist(stack: Stack, old: Base, new: Base, root: Path) -> list[Item]:
    """Make the list for a base that comes after another.

    Args:
        stack: The queues, which apply to the old base.
        old: The base before.
        new: The base.
        root: The root of the project; files below it are shown relative to it.

    Returns:
        Functions that hunks lie in and that changed; names of vLLM that the logic imports and that
        are gone; findings of pyflakes that a merge left behind, where the queues apply; patches
        whose condition for their removal is met.
    """
    return [
        *_functions(stack, old, new),
        *_names(stack, new, root),
        *_findings(stack, new),
        *_conditions(stack, new),
    ]


def _functions(stack: Stack, old: Base, new: Base) -> Iterator[Item]:
    for one in drift(stack, old, new):
        hooks = ", ".join(one.patches)
        yield Item(FUNCTION, f"{one.path}: {one.function}", f"{one.what}; {hooks} lies in it")


def _names(stack: Stack, new: Base, root: Path) -> Iterator[Item]:
    files = [file for queue in stack.queues for file in queue.sources]
    for one in missing(new, files):
        place = one.file.relative_to(root) if one.file.is_relative_to(root) else one.file
        yield Item(NAME, f"{place}:{one.line}", f"vLLM {new.version} has no {one.name}")


def _findings(stack: Stack, new: Base) -> Iterator[Item]:
    try:
        modules = assemble(stack, new).modules
    except ConflictError:
        # Told elsewhere, each with what to do.
        return
    for path, message in findings(modules):
        yield Item(FINDING, path, f"{message}; stock has no such finding")


def _conditions(stack: Stack, new: Base) -> Iterator[Item]:
    for patch in stack.patches:
        if patch.needed(new.version):
            for condition in met(patch, new):
                yield Item(CONDITION, patch.id, condition)


def as_text(items: Sequence[Item]) -> str:
    """Return the list as a table.

    Args:
        items: The list.
    """
    rows = [tables.Row((item.kind, item.where), [item.what]) for item in items]
    return tables.render(("look at", "where"), rows) if items else "nothing to look at"


def as_json(items: Sequence[Item]) -> list[dict[str, str]]:
    """Return one object for each item.

    Args:
        items: The list.
    """
    return [asdict(item) for item in items]
