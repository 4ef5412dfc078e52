"""The functions that hunks lie in, and what became of them in another vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch
from build_hooks.assembly.tree import Tree
from build_hooks.diffs.model import common_ends
from build_hooks.review import source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from build_hooks.bases.base import Base
    from build_hooks.diffs.model import FileDiff, Hunk
    from build_hooks.errors import Conflict
    from build_hooks.queues.stack import Stack

CHANGED, GONE = "changed", "gone"


@dataclass(frozen=True)
class Drift:
    """A function that patches hook into, and that another vLLM has in another form.

    Attributes:
        path: The module, as ``vllm/...``.
        function: Its name, with those of its classes.
        patches: The ids of the patches.
        what: ``CHANGED`` or ``GONE``.
    """

    path: str
    function: str
    patches: tuple[str, ...]
    what: str


def hooked(stack: Stack, base: Base) -> dict[tuple[str, str], tuple[str, ...]]:
    """Find the functions of a base that patches change.

    Args:
        stack: The queues, which apply to the base.
        base: The base.

    Returns:
        For each module and function, the ids of the patches; functions that patches bring are not
        among them.
    """
    tree = Tree(base)
    found: dict[tuple[str, str], list[str]] = {}
    for patch in stack.patches:
        diff = patch.diff(base.version) if patch.needed(base.version) else None
        if diff is None:
            continue
        before = {file.path: tree.current(file.path) for file in diff.files}
        conflicts: list[Conflict] = []
        outcome = apply_patch(patch, tree, conflicts, base.version)
        for file in diff.files if outcome is not None else ():
            moved = outcome.offsets[file.path] if outcome is not None else ()
            stock = source.functions(tree.stock(file.path))
            for name in _touched(file, moved, source.functions(before[file.path])):
                if name in stock and patch.id not in found.setdefault((file.path, name), []):
                    found[file.path, name].append(patch.id)
    return {place: tuple(ids) for place, ids in found.items() if ids}


def _touched(
    file: FileDiff, moved: tuple[int, ...], functions: dict[str, source.Function]
) -> Iterator[str]:
    """Name the innermost function of each change of a diff."""
    for hunk, offset in zip(file.hunks, moved, strict=True):
        for line in _lines(hunk):
            around = [
                (function.last - function.first, name)
                for name, function in functions.items()
                if function.first <= line + offset <= function.last
            ]
            if around:
                yield min(around)[1]


def _lines(hunk: Hunk) -> list[int]:
    """Return the old lines that a hunk changes; of a pure addition, those on both sides."""
    common, after = common_ends(hunk.old, hunk.new)
    first, last = hunk.start + common, hunk.start + len(hunk.old) - after
    return list(range(first, last)) or [first - 1, first]


def drift(stack: Stack, old: Base, new: Base) -> list[Drift]:
    """Compare the functions that patches hook into.

    Args:
        stack: The queues, which apply to the old base.
        old: A base.
        new: Another.

    Returns:
        Those that the new base has no more, or in another form; docstrings, comments and layout do
        not count.
    """
    found = []
    for (path, name), patches in sorted(hooked(stack, old).items()):
        before = source.functions(old.read(path))[name]
        after = source.functions(new.read(path)).get(name)
        if after is None:
            found.append(Drift(path, name, patches, GONE))
        elif after.content != before.content:
            found.append(Drift(path, name, patches, CHANGED))
    return found
