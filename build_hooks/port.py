"""Carrying patches over: a three-way merge to a new release, and diffs written afresh."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks import diff
from build_hooks.assemble import Tree, apply_patch
from build_hooks.errors import BuildError, Conflict, ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.version import Version

    from build_hooks.base import Base
    from build_hooks.queue import Patch, Queue, Variant

APPLIES = "applies"
PORTED = "ported"
MERGED = "conflict"
UPSTREAM = "upstream has it"
NOT_NEEDED = "not needed"


@dataclass(frozen=True)
class Carried:
    """What became of one patch on the new release, and the file to look at."""

    patch: str
    outcome: str
    remark: str = ""


def port(queue: Queue, old: Base, new: Base, patches: Path, scratch: Path) -> list[Carried]:
    """Merge each patch that no longer applies onto a new release.

    A clean merge is written as a new variant below ``patches``. One with conflicts goes to
    ``scratch/<id>/vllm/...`` with conflict markers; once resolved, ``refresh`` turns it into the
    variant. Later patches see the files without an unresolved one.

    Raises:
        ConflictError: if the queue does not apply to the old release.
    """
    before, target = Tree(old), Tree(new)
    carried = []
    for patch in queue.patches:
        source = _variant(patch, old.version)
        changed = {} if source is None else _contents(patch, source, before)
        if not patch.needed(new.version):
            carried.append(Carried(patch.id, NOT_NEEDED, patch.reason(new.version)))
        elif apply_patch(patch, target, [], present=False):
            carried.append(Carried(patch.id, APPLIES))
        else:
            merged = _merge_all(changed, before, target)
            carried.append(_settle(patch, merged, target, patches, scratch))
        if source is not None:
            before.write(patch.id, str(source.release), changed)
    return carried


def _variant(patch: Patch, release: Version) -> Variant | None:
    return patch.variant(release) if patch.needed(release) else None


def _contents(patch: Patch, variant: Variant, tree: Tree) -> dict[str, bytes]:
    """Return what a patch makes of the files it changes, without changing the tree."""
    contents = {}
    for file in variant.files:
        try:
            contents[file.path] = diff.apply(file, tree.current(file.path))[0]
        except diff.MisfitError as error:
            conflicts = [
                Conflict(patch.id, str(variant.release), file.path, m.hunk, m.message, m.detail)
                for m in error.misfits
            ]
            hint = "Mend it first: python -m build_hooks lint, status"
            raise ConflictError(f"vLLM {tree.base.version}", conflicts, hint) from error
    return contents


def _merge_all(
    changed: Mapping[str, bytes], before: Tree, target: Tree
) -> dict[str, tuple[bytes, int]]:
    """Merge each file; the number tells how many conflicts are left in it."""
    merged = {}
    for path, patched in changed.items():
        # A module that is gone or has moved is merged as an empty one: all of it is in conflict.
        ours, ancestor = target.current(path) or b"", before.current(path) or b""
        merged[path] = _merge(ours, ancestor, patched)
    return merged


def _merge(ours: bytes, ancestor: bytes, theirs: bytes) -> tuple[bytes, int]:
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        contents = {"new release": ours, "old release": ancestor, "patch": theirs}
        for label, content in contents.items():
            path = Path(scratch, label)
            path.write_bytes(content)
            files.append(str(path))
        labels = [word for label in contents for word in ("-L", label)]
        try:
            process = subprocess.run(
                ["git", "merge-file", "-p", "--diff3", *labels, *files],  # noqa: S607
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise BuildError("port merges with git, which is not on the PATH") from error
    if process.returncode < 0 or process.returncode > 127:
        raise BuildError(f"git merge-file failed: {process.stderr.decode(errors='replace')}")
    return process.stdout, process.returncode


def _settle(
    patch: Patch,
    merged: Mapping[str, tuple[bytes, int]],
    target: Tree,
    patches: Path,
    scratch: Path,
) -> Carried:
    release = target.base.version.base_version
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
        remark = f"{lacks}resolve the markers below {home}, then run: {again}"
        return Carried(patch.id, MERGED, remark)
    contents = {path: content for path, (content, _) in merged.items()}
    text = _make(contents, target)
    if not text:
        return Carried(patch.id, UPSTREAM, "end the patch: narrow `vllm`, give the reason")
    file = patches / patch.id / f"{release}.patch"
    file.write_text(text, encoding="utf-8")
    target.write(patch.id, release, contents)
    return Carried(patch.id, PORTED, f"wrote {file.name}; review it, then lock")


def refresh(queue: Queue, patch: Patch, base: Base, tree: Path | None) -> str:
    """Write a patch's diff for one release afresh: exact lines, least context.

    Args:
        queue: The queue; the patches before this one are applied first.
        patch: The patch to write.
        base: The release to write it for.
        tree: A directory with the changed ``vllm/...`` files; None takes what the diff makes.

    Raises:
        ConflictError: if this or an earlier patch does not apply.
        BuildError: if a changed file still has conflict markers, or nothing is changed.
    """
    state = Tree(base)
    conflicts: list[Conflict] = []
    for earlier in queue.patches[: queue.patches.index(patch)]:
        if earlier.needed(base.version):
            apply_patch(earlier, state, conflicts, present=False)
    if conflicts:
        hint = "Mend the earlier patches first."
        raise ConflictError(f"vLLM {base.version}", conflicts, hint)
    if tree is None:
        variant = patch.variant(base.version)
        if variant is None:
            raise BuildError(f"{patch.id} has no variant for vLLM {base.version}")
        contents = _contents(patch, variant, state)
    else:
        contents = {
            path.relative_to(tree).as_posix(): path.read_bytes()
            for path in sorted(tree.glob("vllm/**/*.py"))
        }
        if not contents:
            raise BuildError(f"{tree} holds no vllm/...py")
    _refuse_markers(contents)
    text = _make(contents, state)
    if not text:
        raise BuildError(f"{patch.id} changes nothing in vLLM {base.version}")
    return text


def _make(contents: Mapping[str, bytes], tree: Tree) -> str:
    try:
        return "".join(diff.make(p, tree.current(p), c) for p, c in sorted(contents.items()))
    except diff.DiffError as error:
        raise BuildError(f"these changes are none a patch can make: {error}") from error


def _refuse_markers(contents: Mapping[str, bytes]) -> None:
    marked: Sequence[str] = [
        path for path, content in contents.items() if b"\n<<<<<<< new release" in b"\n" + content
    ]
    if marked:
        raise BuildError(f"unresolved conflict markers in {', '.join(marked)}")
