"""Writes the variants of a patch afresh: exact lines, least context, nothing repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build_hooks.assembly.assemble import apply_patch, undone_by
from build_hooks.assembly.tree import Change, Tree
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.model import DiffError
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.releases import final
from build_hooks.upkeep.trees import PatchTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from packaging.version import Version

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, ReleaseDiff
    from build_hooks.queues.stack import Stack


_CORRECT = "Correct the patch; then run this again."


def refresh(stack: Stack, patch: Patch, base: Base, tree: PatchTree | None, trees: Path) -> str:
    """Write a patch's variant for one release afresh.

    Args:
        stack: The queues; the patches before this one are applied first.
        patch: The patch to write.
        base: The release to write it for.
        tree: The changed files; None takes what the diff makes.
        trees: Where a port to this release left its trees: an earlier patch that does not apply,
            and has a tree there, is left out.

    Returns:
        The diff of each file that older variants do not have already; empty if they have all.

    Raises:
        ConflictError: if this or an earlier patch does not apply, or this one undoes another.
        BuildError: if a changed file still has conflict markers, or nothing is changed.
    """
    state = Tree(base)
    for earlier in stack.patches[: stack.patches.index(patch)]:
        conflicts: list[Conflict] = []
        if earlier.needed(base.version):
            apply_patch(earlier, state, conflicts, base.version)
        if conflicts and not PatchTree(trees / earlier.id).remembers:
            raise ConflictError(f"vLLM {base.version}", conflicts, _CORRECT)
    if tree is None:
        diff = patch.diff(base.version)
        if diff is None:
            raise BuildError(
                f"{patch.id} has no variant for vLLM {base.version}: name a directory with the "
                "changed files by --tree"
            )
        contents = {change.file.path: change.content for change in changes_of(patch, diff, state)}
    else:
        contents = tree.onto(state)
    if all(content == state.current(path) for path, content in contents.items()):
        raise BuildError(f"{patch.id} changes nothing in vLLM {base.version}")
    undone = undoes(patch, described(contents, state), state)
    if undone:
        raise ConflictError(f"vLLM {base.version}", undone, "")
    text, left = variant_text(patch, contents, state)
    if left:
        release = final(base.version)
        raise BuildError(
            f"{patch.id} no longer changes files that it changed before {release}. If that is "
            f"meant, {end_them(left, release)}, then run this again."
        )
    return text


def changes_of(patch: Patch, diff: ReleaseDiff, tree: Tree) -> list[Change]:
    """Return what a patch makes of the files that it changes, without changing the tree.

    Args:
        patch: The patch.
        diff: Its diff for the tree's release.
        tree: The files as the earlier patches leave them.

    Returns:
        The changes, one a file.

    Raises:
        ConflictError: if it does not apply.
    """
    changes = []
    for file in diff.files:
        try:
            changes.append(Change(file, *apply(file, tree.current(file.path))))
        except MisfitError as error:
            variant = str(diff.variants[file.path])
            conflicts = [
                Conflict(patch.id, variant, file.path, m.hunk, m.message, m.detail)
                for m in error.misfits
            ]
            raise ConflictError(f"vLLM {tree.base.version}", conflicts, _CORRECT) from error
    return changes


def described(contents: Mapping[str, bytes], tree: Tree) -> list[Change]:
    """Describe changes of which only the outcome is known; files that did not change have none.

    Args:
        contents: The files after the change, by path.
        tree: The files before.

    Raises:
        BuildError: if no diff can tell a change.
    """
    try:
        return [
            Change.of(path, tree.current(path), content)
            for path, content in sorted(contents.items())
            if content != tree.current(path)
        ]
    except DiffError as error:
        raise BuildError(f"these changes are none a patch can make: {error}") from error


def undoes(patch: Patch, changes: Iterable[Change], tree: Tree) -> list[Conflict]:
    """Find the lines in which a patch undoes an earlier one that it does not amend.

    Args:
        patch: The patch.
        changes: What it makes of its files.
        tree: The files before.
    """
    release = str(final(tree.base.version))
    return [
        undone_by(patch.id, release, change.file.path, clash)
        for change in changes
        for clash in tree.undone(patch.id, patch.amends, change)
    ]


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
    made = described(contents, tree)
    changed = {change.file.path for change in made}
    text = "".join(
        change.file.text.decode()
        for change in made
        if change.file.path not in older or not change.file.same_change(older[change.file.path])
    )
    return text, [path for path in older if path not in changed]


def end_them(paths: Sequence[str], release: Version) -> str:
    """Say how a patch stops changing files: else older variants of them would still be applied.

    Args:
        paths: The files.
        release: The release since which the patch does not change them.

    Returns:
        The advice, for the middle of a message.
    """
    lines = ", ".join(f'"{path}" = "{release}"' for path in paths)
    return f"add below [ends] in its patch.toml: {lines}"


def write_variant(patch: Patch, release: Version, text: str) -> tuple[Path, str]:
    """Write the file of a variant, or remove it if the variant says nothing.

    Args:
        patch: The patch.
        release: The release of the variant.
        text: The diffs of the variant.

    Returns:
        The file, and in words what was done.

    Raises:
        OSError: if it cannot be written.
    """
    file = patch.variant_file(release)
    if not text:
        existed = file.exists()
        file.unlink(missing_ok=True)
        return file, "removed: older variants say the same" if existed else "not needed"
    same = file.exists() and file.read_text(encoding="utf-8") == text
    if not same:
        file.write_text(text, encoding="utf-8")
    return file, "unchanged" if same else "written"
