"""Carries a queue over to another release: merges each patch that no longer applies."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch
from build_hooks.assembly.tree import Tree
from build_hooks.releases import final
from build_hooks.shared import outcomes
from build_hooks.upkeep.merge import merge
from build_hooks.upkeep.refresh import (
    end_them,
    patched_files,
    variant_text,
    write_variant,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, Queue


@dataclass(frozen=True)
class Carried:
    """What became of one patch on the new release, and the file to look at."""

    patch: str
    outcome: str
    remark: str = ""


def port(queue: Queue, old: Base, new: Base, scratch: Path) -> list[Carried]:
    """Merge each patch that no longer applies onto a new release.

    A clean merge is written as a new variant of the queue. One with conflicts goes to
    ``scratch/<id>/vllm/...`` with conflict markers; once resolved, ``refresh`` turns it into the
    variant. Later patches see the files without an unresolved one.

    Raises:
        ConflictError: if the queue does not apply to the old release.
    """
    before, target = Tree(old), Tree(new)
    carried = []
    for patch in queue.patches:
        source = patch.diff(old.version) if patch.needed(old.version) else None
        changed = {} if source is None else patched_files(patch, source, before)
        if not patch.needed(new.version):
            carried.append(Carried(patch.id, outcomes.NOT_NEEDED, patch.reason(new.version)))
        elif apply_patch(patch, target, [], present=False):
            carried.append(Carried(patch.id, outcomes.APPLIED))
        elif source is None:
            remark = f"{old.version} does not need it, so there is nothing to merge: write its diff"
            carried.append(Carried(patch.id, outcomes.CONFLICT, remark))
        else:
            merged = _merge_all(changed, before, target)
            carried.append(_settle(queue, patch, merged, target, scratch))
        if source is not None:
            before.write(patch.id, changed, source.variants)
    return carried


def _merge_all(
    changed: Mapping[str, bytes], before: Tree, target: Tree
) -> dict[str, tuple[bytes, int]]:
    """Merge each file; the number tells how many conflicts are left in it."""
    merged = {}
    for path, patched in changed.items():
        # A module that is gone or has moved is merged as an empty one: all of it is in conflict.
        ours, ancestor = target.current(path) or b"", before.current(path) or b""
        merged[path] = merge(ours, ancestor, patched)
    return merged


def _settle(
    queue: Queue,
    patch: Patch,
    merged: Mapping[str, tuple[bytes, int]],
    target: Tree,
    scratch: Path,
) -> Carried:
    release = final(target.base.version)
    if any(conflicts for _, conflicts in merged.values()):
        home = scratch / patch.id
        # What an earlier run has left would be taken for part of the patch.
        shutil.rmtree(home, ignore_errors=True)
        for path, (content, _) in merged.items():
            file = home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        again = f"python -m build_hooks refresh {patch.id} --release {release} --tree {home}"
        gone = [p for p, (_, left) in merged.items() if left and target.current(p) is None]
        lacks = f"{release} has no {', '.join(gone)}; " if gone else ""
        remark = f"{lacks}resolve the markers below {home}, then run:\n{again}"
        return Carried(patch.id, outcomes.CONFLICT, remark)
    contents = {path: content for path, (content, _) in merged.items()}
    if all(content == target.current(path) for path, content in contents.items()):
        remark = "end the patch: narrow `vllm`, give the reason"
        return Carried(patch.id, outcomes.UPSTREAM, remark)
    text, left = variant_text(patch, contents, target)
    file, _ = write_variant(queue, patch, release, text)
    target.write(patch.id, contents, dict.fromkeys(contents, release))
    wrote = f"wrote {file.name}; review it, then lock"
    if left:
        told = f"{release} has what it does to {', '.join(left)}: {end_them(left, release)}"
        return Carried(patch.id, outcomes.UPSTREAM, f"{told}; {wrote}" if text else told)
    return Carried(patch.id, outcomes.PORTED, wrote)
