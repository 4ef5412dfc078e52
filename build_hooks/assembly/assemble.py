"""Applies every patch of a queue that a base needs: strictly, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks.assembly.tree import Change, Tree, there_already
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.model import split
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.files import sha256
from build_hooks.releases import final
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from packaging.version import Version

    from build_hooks.assembly.tree import Data, Module
    from build_hooks.bases.base import Base
    from build_hooks.diffs.model import FileDiff
    from build_hooks.diffs.owners import Clash
    from build_hooks.queues.model import Patch, Queue, ReleaseDiff


@dataclass(frozen=True)
class Outcome:
    """What a patch came to on a base. ``offsets``: lines that each hunk had moved, by file."""

    patch: Patch
    outcome: str
    reason: str = ""
    note: str = ""
    diff: ReleaseDiff | None = None
    offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlay:
    """The queue applied to one base."""

    base: Base
    outcomes: tuple[Outcome, ...]
    modules: tuple[Module, ...]
    data: tuple[Data, ...]

    def stock_hashes(self) -> dict[str, str | None]:
        """Return the sha256 of every stock file the build has read (None: there is none)."""
        hashes = {m.path: None if m.stock is None else sha256(m.stock) for m in self.modules}
        return dict(sorted((hashes | {data.path: None for data in self.data}).items()))

    def served_hashes(self) -> dict[str, str]:
        """Return the sha256 of every file that the overlay brings."""
        return {f.path: sha256(f.served) for f in sorted(self.files, key=lambda f: f.path)}

    @property
    def files(self) -> tuple[Module | Data, ...]:
        """Every file that the overlay brings: modules, then data."""
        return (*self.modules, *self.data)


def assemble(queue: Queue, base: Base, present: Collection[str] = ()) -> Overlay:
    """Apply every patch that the base needs, strictly, all or nothing.

    Args:
        queue: The patch queue.
        base: The vLLM to patch.
        present: Ids of patches that the base (a fork) is known to carry already.

    Raises:
        ConflictError: listing every hunk of every patch that does not fit.
        BuildError: if ``present`` names an unknown patch, or one that the base needs not.
    """
    unknown = sorted(set(present) - {patch.id for patch in queue.patches})
    if unknown:
        known = ", ".join(patch.id for patch in queue.patches)
        raise BuildError(f"NRL_VLLM_PRESENT names {', '.join(unknown)}; the queue has: {known}")
    tree = Tree(base)
    made = []
    conflicts: list[Conflict] = []
    for patch in queue.patches:
        if not patch.needed(base.version):
            if patch.id in present:
                raise BuildError(
                    f"NRL_VLLM_PRESENT names {patch.id}, but {base.version} does not need it: "
                    f"{patch.reason(base.version)}"
                )
            made.append(Outcome(patch, outcomes.NOT_NEEDED, reason=patch.reason(base.version)))
            continue
        outcome = apply_patch(patch, tree, conflicts, present=patch.id in present)
        if outcome is not None:
            made.append(outcome)
    conflicts += tree.compile_errors()
    conflicts += tree.name_clashes()
    if conflicts:
        hint = _hint(queue, base, conflicts)
        raise ConflictError(f"vLLM {base.version} ({base.origin})", conflicts, hint)
    return Overlay(base, tuple(made), tree.modules(), tree.data())


def _hint(queue: Queue, base: Base, conflicts: Sequence[Conflict]) -> str:
    """Say how to carry patches over; empty where patches stand against each other alone."""
    blocked = {conflict.patch for conflict in conflicts if not conflict.other}
    sources: dict[Version, list[str]] = {}
    for patch in queue.patches:
        source = nearest(queue, patch, base.version) if patch.id in blocked else None
        if source is not None:
            sources.setdefault(source, []).append(patch.id)
    target = str(base.version) if base.pristine else base.origin
    return "\n".join(
        f"To carry {', '.join(ids)} over to this base, run: "
        f"python -m build_hooks port {source} {target}"
        for source, ids in sorted(sources.items())
    )


def nearest(queue: Queue, patch: Patch, version: Version) -> Version | None:
    """Return the supported release that needs a patch and is the nearest to a version.

    An older release is taken before a newer one; the version itself is never taken.
    """
    known = [r for r in queue.releases if patch.needed(r) and patch.diff(r) is not None]
    older = [release for release in known if release < final(version)]
    newer = [release for release in known if release > final(version)]
    return older[-1] if older else newer[0] if newer else None


def apply_patch(
    patch: Patch, tree: Tree, conflicts: list[Conflict], *, present: bool
) -> Outcome | None:
    """Apply one patch to the tree, whole or not at all.

    Args:
        patch: The patch.
        tree: The files as earlier patches leave them; it takes over what this one makes of them.
        conflicts: Gets everything that keeps the patch from applying.
        present: Whether the base is said to carry the patch already.

    Returns:
        What became of the patch; None if it does not apply.
    """
    version = tree.base.version
    diff = patch.diff(version)
    if diff is None:
        oldest = patch.variants[0].release
        message = f"no variant for vLLM {version}; the oldest is for {oldest}"
        conflicts.append(Conflict(patch.id, str(oldest), "", 0, message))
        return None
    faults: list[Conflict] = []
    changes: dict[str, Change] = {}
    for file in diff.files:
        variant = str(diff.variants[file.path])
        there = there_already(file, tree.current(file.path))
        if present:
            if not there:
                message = "NRL_VLLM_PRESENT names this patch, but the base does not carry it here"
                faults.append(Conflict(patch.id, variant, file.path, 0, message))
            continue
        change = None if there else _change(patch, variant, file, tree, faults)
        if change is not None:
            changes[file.path] = change
        elif there_already(file, tree.stock(file.path)):
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
    tree.write(patch.id, str(diff.release), changes.values())
    note = patch.notes.get(final(version), "")
    offsets = {path: change.offsets for path, change in changes.items()}
    return Outcome(patch, outcomes.APPLIED, note=note, diff=diff, offsets=offsets)


_IN_THE_BASE = (
    "the base has this change already. If upstream brought it, end the patch: narrow `vllm` and "
    "give the reason under [not-needed]. If a fork did, name the patch in NRL_VLLM_PRESENT."
)


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
    """Describe a line in which a patch undoes another that it does not amend."""
    does = "takes out" if clash.taken_out else "brings back"
    did = "put in" if clash.taken_out else "took out"
    text = clash.text.decode(errors="backslashreplace").strip()
    message = (
        f"undoes {clash.owner}: it {does} line {clash.line}, which {clash.owner} {did}: {text!r}. "
        f'If that is meant, write `amends = ["{clash.owner}"]` into its patch.toml.'
    )
    return Conflict(patch, variant, path, clash.hunk, message, other=clash.owner)


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
