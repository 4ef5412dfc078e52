"""Writes the variants of a patch afresh: exact lines, least context, nothing repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch
from build_hooks.assembly.tree import Tree
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.model import DiffError
from build_hooks.diffs.reader import parse
from build_hooks.diffs.writer import make
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.releases import final
from build_hooks.upkeep.merge import refuse_markers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from packaging.version import Version

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, Queue, ReleaseDiff


def refresh(queue: Queue, patch: Patch, base: Base, tree: Path | None) -> str:
    """Write a patch's variant for one release afresh.

    Args:
        queue: The queue; the patches before this one are applied first.
        patch: The patch to write.
        base: The release to write it for.
        tree: A directory with the changed ``vllm/...`` files; None takes what the diff makes.

    Returns:
        The diff of each file that older variants do not have already; empty if they have all.

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
        diff = patch.diff(base.version)
        if diff is None:
            raise BuildError(f"{patch.id} has no variant for vLLM {base.version}")
        contents = patched_files(patch, diff, state)
    else:
        contents = {
            path.relative_to(tree).as_posix(): path.read_bytes()
            for path in sorted(tree.glob("vllm/**/*.py"))
        }
        if not contents:
            raise BuildError(f"{tree} holds no vllm/...py")
    refuse_markers(contents)
    if all(content == state.current(path) for path, content in contents.items()):
        raise BuildError(f"{patch.id} changes nothing in vLLM {base.version}")
    text, left = variant_text(patch, contents, state)
    if left:
        release = final(base.version)
        raise BuildError(
            f"{patch.id} no longer changes files that it changed before {release}. If that is "
            f"meant, {end_them(left, release)}, then run this again."
        )
    return text


def patched_files(patch: Patch, diff: ReleaseDiff, tree: Tree) -> dict[str, bytes]:
    """Return what a patch makes of the files it changes, without changing the tree.

    Raises:
        ConflictError: if it does not apply.
    """
    contents = {}
    for file in diff.files:
        try:
            contents[file.path] = apply(file, tree.current(file.path))[0]
        except MisfitError as error:
            variant = str(diff.variants[file.path])
            conflicts = [
                Conflict(patch.id, variant, file.path, m.hunk, m.message, m.detail)
                for m in error.misfits
            ]
            hint = "Mend it first: python -m build_hooks lint, status"
            raise ConflictError(f"vLLM {tree.base.version}", conflicts, hint) from error
    return contents


def variant_text(patch: Patch, contents: Mapping[str, bytes], tree: Tree) -> tuple[str, list[str]]:
    """Write the variant of a patch for the tree's release: what older variants do not say.

    Args:
        patch: The patch.
        contents: What it makes of each file that it changes.
        tree: The files as the earlier patches leave them.

    Returns:
        The diffs, file by file, empty if older variants have them all; and the files that older
        variants change, but this one does not.

    Raises:
        BuildError: if no diff can tell a change.
    """
    before = patch.inherited(tree.base.version)
    older = {file.path: file for file in before.files} if before else {}
    texts = {}
    for path, content in sorted(contents.items()):
        try:
            texts[path] = make(path, tree.current(path), content)
        except DiffError as error:
            raise BuildError(f"these changes are none a patch can make: {error}") from error
    left = [path for path in older if not texts.get(path)]
    new = [
        text
        for path, text in texts.items()
        if text and not (path in older and parse(text.encode())[0].same_change(older[path]))
    ]
    return "".join(new), left


def end_them(paths: Sequence[str], release: Version) -> str:
    """Say how a patch stops changing files; else older variants of them would still be applied."""
    lines = ", ".join(f'"{path}" = "{release}"' for path in paths)
    return f"add below [ends] in its patch.toml: {lines}"


def write_variant(queue: Queue, patch: Patch, release: Version, text: str) -> tuple[Path, str]:
    """Write a variant, or remove one that says nothing; return its file and what was done."""
    file = queue.variant_file(patch.id, release)
    if not text:
        existed = file.exists()
        file.unlink(missing_ok=True)
        return file, "removed: older variants say the same" if existed else "not needed"
    same = file.exists() and file.read_text(encoding="utf-8") == text
    if not same:
        file.write_text(text, encoding="utf-8")
    return file, "unchanged" if same else "written"
