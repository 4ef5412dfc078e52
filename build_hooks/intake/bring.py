"""Brings patches of others onto a tree: every one of them, or none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch
from build_hooks.assembly.tree import Tree
from build_hooks.diffs.reader import parse
from build_hooks.errors import Conflict, ConflictError
from build_hooks.intake.arrival import Arrival
from build_hooks.intake.door import Door
from build_hooks.releases import final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from build_hooks.bases.base import Base
    from build_hooks.intake.arrival import Brought
    from build_hooks.intake.door import Options
    from build_hooks.intake.model import ForeignPatch
    from build_hooks.queues.stack import Stack


def bring(
    patches: Sequence[tuple[str, ForeignPatch]], tree: Tree, options: Options
) -> list[Brought]:
    """Bring patches onto a tree, in order.

    Args:
        patches: Each with the id that it gets.
        tree: The base with all patches that come before; it takes over what these make of it.
        options: What the user says.

    Raises:
        IntakeError: naming everything that no overlay can carry.
        BuildError: listing every hunk that has no place, every file that is broken.
    """
    door = Door(tree, options)
    brought = []
    for name, patch in patches:
        one = Arrival(door, name, patch, door.reading(patch, [p for _, p in patches]))
        made = one.bring()
        if made is not None:
            brought.append(made)
    if not (door.refused or door.conflicts):
        brought = [_placed(one, tree, door) for one in brought]
    names = {name for name, _ in patches}
    if not (door.refused or door.conflicts):
        broken = [*(tree.compile_errors() or tree.places.conflicts()), *tree.name_clashes()]
        door.conflicts += [conflict for conflict in broken if conflict.patch in names]
    door.settle()
    return brought


def _placed(one: Brought, tree: Tree, door: Door) -> Brought:
    """Decide where the modules of a patch find files, and have a person look at it."""
    if tree.compile_errors():
        return one
    answers = tree.places.proposed([file.path for file in parse(one.text.encode())])
    door.conflicts += tree.places.settle(one.id, str(final(tree.base.version)), answers)
    doubts = [
        f"[place] {path}: it finds files by its own place; is {json.dumps(answer)} right?"
        for path, answer in answers.items()
    ]
    return replace(one, place=answers, review=(*one.review, *doubts))


def below(queues: Stack, base: Base) -> Tree:
    """Return a base with what queues make of it: what new patches come on top of.

    Args:
        queues: The queues.
        base: The base.

    Raises:
        ConflictError: if a patch does not apply.
    """
    tree = Tree(base)
    conflicts: list[Conflict] = []
    for patch in queues.patches:
        if patch.needed(base.version):
            apply_patch(patch, tree, conflicts, base.version)
    if conflicts:
        hint = "Mend these patches first, or leave them out: --patches=-ID"
        raise ConflictError(f"vLLM {base.version} ({base.origin})", conflicts, hint)
    return tree
