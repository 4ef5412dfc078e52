"""Carries a queue over to another release: merges each patch that no longer applies."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch, nearest
from build_hooks.assembly.tree import Tree
from build_hooks.errors import Conflict, ConflictError
from build_hooks.releases import final
from build_hooks.shared import outcomes
from build_hooks.upkeep import infer
from build_hooks.upkeep.merge import merge
from build_hooks.upkeep.refresh import (
    changes_of,
    described,
    end_them,
    undoes,
    variant_text,
    write_variant,
)
from build_hooks.upkeep.reviews import ask
from build_hooks.upkeep.trees import PatchTree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from packaging.version import Version

    from build_hooks.assembly.tree import Change
    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch
    from build_hooks.queues.stack import Stack


@dataclass(frozen=True)
class Carried:
    """What became of one patch on the new release.

    Attributes:
        patch: The id of the patch.
        outcome: One of the words of a port, in ``outcomes``.
        remark: What to do next.
    """

    patch: str
    outcome: str
    remark: str = ""


def port(stack: Stack, old: Base, new: Base, trees: Path) -> list[Carried]:
    """Merge each patch that no longer applies onto a new release.

    A clean merge is written as a new variant of the queue. One with conflicts waits for a person,
    as a tree ``<id>/vllm/...`` with conflict markers; once they are resolved, ``refresh`` turns it
    into the variant. Later patches see the files without an unresolved one. Every tree has the
    state that it started from, so that patches of one file are resolved in any order.

    Args:
        stack: The queues; the patches of the last one are carried, the others have to apply.
        old: A release that the queues apply to.
        new: The release to carry them to.
        trees: The directory for the trees of this release.

    Returns:
        What became of each patch, in their order.

    Raises:
        ConflictError: if the queues do not apply to the old release, or those below the last one
            not to the new one.
    """
    before, target = Tree(old), Tree(new)
    carried = []
    for patch in stack.patches:
        source = patch.diff(old.version) if patch.needed(old.version) else None
        changes = [] if source is None else changes_of(patch, source, before)
        if patch.queue == stack.top.name:
            tree = PatchTree(trees / patch.id)
            carried.append(_carry(patch, changes, before, target, tree))
        elif patch.needed(new.version):
            _apply_below(patch, target)
        if source is not None:
            before.write(patch.id, source.variants, changes)
    return carried


def _apply_below(patch: Patch, target: Tree) -> None:
    """Apply a patch of a queue that is not ported now."""
    conflicts: list[Conflict] = []
    if apply_patch(patch, target, conflicts, target.base.version) is None:
        hint = f"Port the queue {patch.queue} first, or leave the patch out with --patches."
        raise ConflictError(f"vLLM {target.base.version}", conflicts, hint)


def _carry(
    patch: Patch,
    changes: Sequence[Change],
    before: Tree,
    target: Tree,
    tree: PatchTree,
) -> Carried:
    version = target.base.version
    if not patch.needed(version):
        return Carried(patch.id, outcomes.NOT_NEEDED, patch.reason(version))
    conflicts: list[Conflict] = []
    if apply_patch(patch, target, conflicts, version):
        return Carried(patch.id, outcomes.APPLIED)
    if tree.unresolved:
        return Carried(patch.id, outcomes.CONFLICT, _waits(patch, tree, version))
    wanted = [change for change in changes if patch.changes(change.file.path, version)]
    if not wanted:
        return Carried(patch.id, outcomes.NO_SOURCE, _without_source(patch, before, version))
    # Taken for part of the patch if it stayed.
    shutil.rmtree(tree.home, ignore_errors=True)
    gone = [c.file.path for c in wanted if not c.file.added and target.current(c.file.path) is None]
    merged: dict[str, bytes] = {}
    inferred: list[str] = []
    for change in wanted:
        path = change.file.path
        if path not in gone:
            ours, ancestor = target.current(path) or b"", before.current(path) or b""
            merged[path], conflicts_left = merge(ours, ancestor, change.content)
            if conflicts_left:
                merged[path], notes = infer.resolve(merged[path], ours)
                inferred += [f"{path}, {note}" for note in notes]
    start = {path: target.current(path) for path in merged}
    if merged:
        tree.write(merged, start)
    if gone:
        return Carried(patch.id, outcomes.DECISION, _decide(patch, gone, tree, version))
    if tree.unresolved:
        guesses = [f"inferred, look at it: {note}" for note in inferred]
        waits = _waits(patch, tree, version)
        return Carried(patch.id, outcomes.CONFLICT, "\n".join([waits, *guesses]))
    if all(content == target.current(path) for path, content in merged.items()):
        shutil.rmtree(tree.home)
        remark = "end the patch: narrow `vllm`, give the reason"
        return Carried(patch.id, outcomes.UPSTREAM, remark)
    made = described(merged, target)
    undone = undoes(patch, made, target)
    if undone:
        return Carried(patch.id, outcomes.CONFLICT, "\n".join(map(str, undone)))
    release = final(version)
    text, left = variant_text(patch, merged, target)
    file, _ = write_variant(patch, release, text)
    target.write(patch.id, dict.fromkeys(merged, release), made)
    wrote = f"wrote {file.name}; review it, then lock"
    if inferred:
        ask(patch, release, inferred)
        confirm = f"python -m build_hooks refresh {patch.id} --release {release}"
        listed = "\n".join(f"inferred: {note}" for note in inferred)
        wrote = f"wrote {file.name}\n{listed}\nLook at it; if it is right, run:\n{confirm}"
    if left:
        told = f"{release} has what it does to {', '.join(left)}: {end_them(left, release)}"
        return Carried(patch.id, outcomes.UPSTREAM, f"{told}; {wrote}" if text else told)
    return Carried(patch.id, outcomes.PORTED, wrote)


def _waits(patch: Patch, tree: PatchTree, version: Version) -> str:
    return (
        f"resolve the markers below {tree.shown} (or delete it to merge again), then run:\n"
        f"{_refresh(patch, tree, version)}"
    )


def _decide(patch: Patch, gone: Sequence[str], tree: PatchTree, version: Version) -> str:
    ends = "; ".join(f'"{path}" = "{final(version)}"' for path in gone)
    return (
        f"{final(version)} has no {', '.join(gone)}. Decide: if what the patch does there is "
        f"needed no longer, write into its patch.toml under [ends]: {ends}; then run port again. "
        f"If the module has moved, write that as well, make the change in the new module below "
        f"{tree.shown}, and run:\n{_refresh(patch, tree, version)}"
    )


def _without_source(patch: Patch, before: Tree, version: Version) -> str:
    source = nearest(patch, version)
    advice = f"; port it from {source}" if source else "; write its first variant by hand"
    return f"{before.base.version} has no diff of this patch to merge{advice}"


def _refresh(patch: Patch, tree: PatchTree, version: Version) -> str:
    return (
        f"python -m build_hooks refresh {patch.id} --release {final(version)} --tree {tree.shown}"
    )
