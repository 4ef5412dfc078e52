"""Applies every patch of a queue that a base needs: strictly, all or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks.assembly.tree import Tree, there_already
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.files import sha256
from build_hooks.releases import final
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from build_hooks.assembly.tree import Module
    from build_hooks.bases.base import Base
    from build_hooks.diffs.model import FileDiff
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

    def stock_hashes(self) -> dict[str, str | None]:
        """Return the sha256 of every stock file the build has read (None: there is none)."""
        return {m.path: None if m.stock is None else sha256(m.stock) for m in self.modules}


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
        hint = (
            "To carry the queue over to this base, run: "
            f"python -m build_hooks port {queue.releases[-1]} <base>"
        )
        raise ConflictError(f"vLLM {base.version} ({base.origin})", conflicts, hint)
    return Overlay(base, tuple(made), tree.modules())


def apply_patch(
    patch: Patch, tree: Tree, conflicts: list[Conflict], *, present: bool
) -> Outcome | None:
    """Apply one patch to the tree, whole or not at all; what is wrong goes to ``conflicts``."""
    version = tree.base.version
    diff = patch.diff(version)
    if diff is None:
        oldest = patch.variants[0].release
        message = f"no variant for vLLM {version}; the oldest is for {oldest}"
        conflicts.append(Conflict(patch.id, str(oldest), "", 0, message))
        return None
    there = [file.path for file in diff.files if there_already(file, tree.current(file.path))]
    faults: list[Conflict] = []
    contents: dict[str, bytes] = {}
    offsets: dict[str, tuple[int, ...]] = {}
    for file in diff.files:
        name = str(diff.variants[file.path])
        if present and file.path not in there:
            message = "NRL_VLLM_PRESENT names this patch, but the base does not carry it here"
            faults.append(Conflict(patch.id, name, file.path, 0, message))
        elif not present and file.path in there:
            by_base = there_already(file, tree.stock(file.path))
            message = _IN_THE_BASE if by_base else "an earlier patch has brought this change"
            faults.append(Conflict(patch.id, name, file.path, 0, message))
        elif not present:
            try:
                contents[file.path], offsets[file.path] = apply(file, tree.current(file.path))
            except MisfitError as error:
                faults += _conflicts(patch.id, name, file, tree, error)
    if faults:
        conflicts += faults
        return None
    if present:
        return Outcome(patch, outcomes.PRESENT, "named in NRL_VLLM_PRESENT", diff=diff)
    tree.write(patch.id, contents, diff.variants)
    note = patch.notes.get(final(version), "")
    return Outcome(patch, outcomes.APPLIED, note=note, diff=diff, offsets=offsets)


_IN_THE_BASE = (
    "the base has this change already. If upstream brought it, end the patch: narrow `vllm` and "
    "give the reason under [not-needed]. If a fork did, name the patch in NRL_VLLM_PRESENT."
)


def _conflicts(
    patch: str, variant: str, file: FileDiff, tree: Tree, error: MisfitError
) -> Iterator[Conflict]:
    for misfit in error.misfits:
        other = tree.displaced_by(file, misfit.hunk)
        blame = f"conflicts with {other}, which comes before it: " if other else ""
        message = f"{blame}{misfit.message}"
        yield Conflict(patch, variant, file.path, misfit.hunk, message, misfit.detail)
