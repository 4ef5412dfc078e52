"""Applies every patch of a queue that a base needs: strictly, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks.assembly.tree import Change, Data, Module, Tree, brought_already
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.model import split
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.releases import final
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from build_hooks.bases.base import Base
    from build_hooks.diffs.model import FileDiff
    from build_hooks.diffs.owners import Clash
    from build_hooks.queues.model import Patch, ReleaseDiff
    from build_hooks.queues.stack import Stack


@dataclass(frozen=True)
class Outcome:
    """What became of a patch on a base.

    Attributes:
        patch: The patch.
        outcome: One of the words of a build, in ``outcomes``.
        reason: Why it is not needed, or whose word it is that the base has it.
        note: What the patch says of this release.
        diff: The diff that was applied, or found in the base.
        offsets: For each file, by how many lines the place of each hunk has moved.
    """

    patch: Patch
    outcome: str
    reason: str = ""
    note: str = ""
    diff: ReleaseDiff | None = None
    offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlay:
    """The patches of a stack applied to one base.

    Attributes:
        stack: The queues.
        base: The base.
        release: The release that it is, or that its patches are those of.
        outcomes: What became of each patch.
        files: Every file that it brings: modules, and data.
        stages: The same after each queue, by its name.
    """

    stack: Stack
    base: Base
    release: Version
    outcomes: tuple[Outcome, ...]
    files: tuple[Module | Data, ...]
    stages: Mapping[str, tuple[Module | Data, ...]]

    @property
    def modules(self) -> tuple[Module, ...]:
        """Every module that is served."""
        return tuple(file for file in self.files if isinstance(file, Module))

    @property
    def data(self) -> tuple[Data, ...]:
        """Every data file."""
        return tuple(file for file in self.files if isinstance(file, Data))


def assemble(
    stack: Stack,
    base: Base,
    release: Version | None = None,
    *,
    present: Collection[str] = (),
    provided: Collection[str] = (),
) -> Overlay:
    """Apply every patch that the base needs, strictly, all or nothing.

    Args:
        stack: The queues, and the patches that are taken.
        base: The vLLM to patch.
        release: The release whose variants are applied; None for that of the base's version.
        present: Ids of patches that the base (a fork) is known to carry already.
        provided: Ids of patches whose effect the base is said to have in a form of its own.

    Returns:
        What became of every patch, and the modules that they change.

    Raises:
        ConflictError: listing every hunk of every patch that does not fit.
        BuildError: if ``present`` or ``provided`` names an unknown patch, or one that the base
            does not need.
    """
    release = base.version if release is None else release
    _refuse_unknown(stack, "NRL_VLLM_PRESENT", present)
    _refuse_unknown(stack, "NRL_VLLM_PROVIDED", provided)
    tree = Tree(base)
    made = []
    stages = {}
    conflicts: list[Conflict] = []
    for queue in stack.queues:
        for patch in (patch for patch in stack.patches if patch.queue == queue.name):
            if not patch.needed(release):
                reason = patch.reason(release)
                for variable, ids in (("PRESENT", present), ("PROVIDED", provided)):
                    if patch.id in ids:
                        raise BuildError(
                            f"NRL_VLLM_{variable} names {patch.id}, but {release} does not need "
                            f"it: {reason}"
                        )
                made.append(Outcome(patch, outcomes.NOT_NEEDED, reason=reason))
            elif patch.id in provided:
                reason = "named in NRL_VLLM_PROVIDED"
                made.append(Outcome(patch, outcomes.PROVIDED, reason=reason))
            else:
                outcome = apply_patch(patch, tree, conflicts, release, present=patch.id in present)
                if outcome is not None:
                    made.append(outcome)
        stages[queue.name] = tree.files()
    broken = tree.compile_errors()
    conflicts += broken or list(tree.places.conflicts())
    conflicts += tree.name_clashes()
    if conflicts:
        hint = _hint(stack, base, release, conflicts)
        raise ConflictError(f"vLLM {base.version} ({base.origin})", conflicts, hint)
    return Overlay(stack, base, release, tuple(made), tree.files(), stages)


def _refuse_unknown(stack: Stack, variable: str, ids: Collection[str]) -> None:
    known = [patch.id for patch in stack.patches]
    unknown = sorted(set(ids) - set(known))
    if unknown:
        raise BuildError(f"{variable} names {', '.join(unknown)}; there are: {', '.join(known)}")


def _hint(stack: Stack, base: Base, release: Version, conflicts: Sequence[Conflict]) -> str:
    """Say how to carry patches over; empty where patches stand against each other alone."""
    blocked = {conflict.patch for conflict in conflicts if conflict.ports and not conflict.other}
    sources: dict[Version, list[str]] = {}
    for patch in stack.patches:
        source = nearest(patch, release) if patch.id in blocked else None
        if source is not None:
            sources.setdefault(source, []).append(patch.id)
    target = str(base.version) if base.pristine else base.origin
    return "\n".join(
        f"To carry {', '.join(ids)} over to this base, run: "
        f"python -m build_hooks port {source} {target}"
        for source, ids in sorted(sources.items())
    )


def nearest(patch: Patch, version: Version) -> Version | None:
    """Return the supported release that needs a patch and is the nearest to a version.

    An older release is taken before a newer one; the version itself is never taken.

    Args:
        patch: The patch.
        version: The version of a base.
    """
    known = [r for r in patch.releases if patch.needed(r) and patch.diff(r) is not None]
    older = [release for release in known if release < final(version)]
    newer = [release for release in known if release > final(version)]
    return older[-1] if older else newer[0] if newer else None


def apply_patch(
    patch: Patch,
    tree: Tree,
    conflicts: list[Conflict],
    release: Version,
    *,
    present: bool = False,
) -> Outcome | None:
    """Apply one patch to the tree, whole or not at all.

    Args:
        patch: The patch.
        tree: The files as earlier patches leave them; it takes over what this one makes of them.
        conflicts: Gets everything that keeps the patch from applying.
        release: The release whose variant is applied.
        present: Whether the base is said to carry the patch already.

    Returns:
        What became of the patch; None if it does not apply.
    """
    diff = patch.diff(release)
    if diff is None:
        oldest = patch.variants[0].release
        message = f"no variant for vLLM {release}; the oldest is for {oldest}"
        conflicts.append(Conflict(patch.id, str(oldest), "", 0, message))
        return None
    faults: list[Conflict] = []
    changes: dict[str, Change] = {}
    for file in diff.files:
        variant = str(diff.variants[file.path])
        there = brought_already(file, tree.current(file.path))
        if present:
            if not there:
                message = "NRL_VLLM_PRESENT names this patch, but the base does not carry it here"
                faults.append(Conflict(patch.id, variant, file.path, 0, message))
            continue
        change = None if there else _change(patch, variant, file, tree, faults)
        if change is not None:
            changes[file.path] = change
        elif (there or not _undoes(faults, file.path)) and brought_already(
            file, tree.stock(file.path)
        ):
            # An earlier patch of ours may hide it in the file as it is now.
            faults[:] = [fault for fault in faults if fault.file != file.path]
            faults.append(Conflict(patch.id, variant, file.path, 0, _IN_THE_BASE))
        elif there:
            message = "an earlier patch has brought this change"
            brought = tree.last_writer(file.path)
            faults.append(Conflict(patch.id, variant, file.path, 0, message, other=brought))
    if faults:
        conflicts += faults
        return None
    if present:
        return Outcome(patch, outcomes.PRESENT, "named in NRL_VLLM_PRESENT", diff=diff)
    tree.write(patch.id, diff.variants, changes.values())
    conflicts += tree.places.settle(patch.id, str(diff.release), patch.place)
    note = patch.notes.get(final(release), "")
    offsets = {path: change.offsets for path, change in changes.items()}
    return Outcome(patch, outcomes.APPLIED, note=note, diff=diff, offsets=offsets)


_IN_THE_BASE = (
    "the base has this change already. If upstream brought it, end the patch: narrow `vllm` and "
    "give the reason under [not-needed]. If a fork did, name the patch in NRL_VLLM_PRESENT."
)


def _undoes(faults: Iterable[Conflict], path: str) -> bool:
    """Tell whether a file's diff fits, and is refused because it undoes another patch."""
    return any(fault.file == path and fault.undoes for fault in faults)


def _change(
    patch: Patch, variant: str, file: FileDiff, tree: Tree, faults: list[Conflict]
) -> Change | None:
    """Apply the diff of one file; None if it does not fit, or undoes an earlier patch."""
    try:
        content, offsets = apply(file, tree.current(file.path), tree.owners(file.path))
    except MisfitError as error:
        faults += _misfits(patch.id, variant, file, tree, error)
        return None
    change = Change(file, content, offsets)
    undone = tree.undone(patch.id, patch.amends, change)
    faults += [undone_by(patch.id, variant, file.path, clash) for clash in undone]
    return None if undone else change


def undone_by(patch: str, variant: str, path: str, clash: Clash) -> Conflict:
    """Describe a line in which a patch undoes another that it does not amend.

    Args:
        patch: The id of the patch.
        variant: Its variant.
        path: The file.
        clash: The line.
    """
    does = "takes out" if clash.taken_out else "brings back"
    did = "put in" if clash.taken_out else "took out"
    text = clash.text.decode(errors="backslashreplace").strip()
    message = (
        f"undoes {clash.owner}: it {does} line {clash.line}, which {clash.owner} {did}: {text!r}. "
        f'If that is meant, write `amends = ["{clash.owner}"]` into its patch.toml.'
    )
    return Conflict(patch, variant, path, clash.hunk, message, other=clash.owner, undoes=True)


def _misfits(
    patch: str, variant: str, file: FileDiff, tree: Tree, error: MisfitError
) -> Iterator[Conflict]:
    """Describe the hunks that have no place, and whose fault it is."""
    partly = _partly_there(file, tree.stock(file.path))
    for misfit in error.misfits:
        other = tree.displaced_by(file, misfit.hunk) or ""
        blame = f"conflicts with {other}, which comes before it: " if other else ""
        message = f"{blame}{misfit.message}{'' if other else partly}"
        yield Conflict(patch, variant, file.path, misfit.hunk, message, misfit.detail, other)


def _partly_there(file: FileDiff, stock: bytes | None) -> str:
    """Say how many of the lines that a diff adds stand in the stock file already, if half do."""
    lines = set(split(stock or b""))
    added = [
        line for hunk in file.hunks for line in hunk.new if line not in hunk.old and line.strip()
    ]
    found = sum(line in lines for line in added)
    if not found or 2 * found < len(added):
        return ""
    return f" ({found} of {len(added)} added lines are in the base already: partly upstream?)"
