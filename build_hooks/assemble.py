"""Applies the queue to a base: what each patch came to, and every module the overlay serves."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks import diff
from build_hooks.errors import BuildError, Conflict, ConflictError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from build_hooks.base import Base
    from build_hooks.queue import Patch, Queue, Variant

APPLIED = "applied"
NOT_NEEDED = "not-needed"
PRESENT = "present"


@dataclass(frozen=True)
class Outcome:
    """What a patch came to on a base. ``offsets``: lines that each hunk had moved, by file."""

    patch: Patch
    outcome: str
    reason: str = ""
    note: str = ""
    variant: Variant | None = None
    offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """One file the overlay serves. ``stock`` is None where the overlay adds the module."""

    path: str
    stock: bytes | None
    served: bytes
    patches: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the importable name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_package(self) -> bool:
        """Return whether the file is a package's ``__init__.py``."""
        return self.path.endswith("/__init__.py")


@dataclass(frozen=True)
class Overlay:
    """The queue applied to one base."""

    base: Base
    outcomes: tuple[Outcome, ...]
    modules: tuple[Module, ...]

    def stock_hashes(self) -> dict[str, str | None]:
        """Return the sha256 of every stock file the build has read (None: there is none)."""
        return {m.path: None if m.stock is None else sha256(m.stock) for m in self.modules}


def sha256(content: bytes) -> str:
    """Return the hash by which contents are compared everywhere."""
    return hashlib.sha256(content).hexdigest()


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
    outcomes = []
    conflicts: list[Conflict] = []
    for patch in queue.patches:
        if not patch.needed(base.version):
            if patch.id in present:
                raise BuildError(
                    f"NRL_VLLM_PRESENT names {patch.id}, but {base.version} does not need it: "
                    f"{patch.reason(base.version)}"
                )
            outcomes.append(Outcome(patch, NOT_NEEDED, reason=patch.reason(base.version)))
            continue
        outcome = apply_patch(patch, tree, conflicts, present=patch.id in present)
        if outcome is not None:
            outcomes.append(outcome)
    conflicts += tree.compile_errors()
    conflicts += tree.name_clashes()
    if conflicts:
        hint = (
            "To carry the queue over to this base, run: "
            f"python -m build_hooks port {queue.releases[-1]} <base>"
        )
        raise ConflictError(f"vLLM {base.version} ({base.origin})", conflicts, hint)
    return Overlay(base, tuple(outcomes), tree.modules())


class Tree:
    """The base's files as the patches applied so far leave them."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self._stock: dict[str, bytes | None] = {}
        # For each file, its content after each patch that changed it.
        self._history: dict[str, list[tuple[str, str, bytes]]] = {}

    def stock(self, path: str) -> bytes | None:
        """Return a file as the base has it."""
        if path not in self._stock:
            self._stock[path] = self.base.read(path)
        return self._stock[path]

    def current(self, path: str) -> bytes | None:
        """Return a file as the patches so far leave it."""
        history = self._history.get(path)
        return history[-1][2] if history else self.stock(path)

    def write(self, patch: str, variant: str, contents: Mapping[str, bytes]) -> None:
        """Take over what a patch makes of its files."""
        for path, content in contents.items():
            self._history.setdefault(path, []).append((patch, variant, content))

    def displaced_by(self, file: diff.FileDiff, hunk: int) -> str | None:
        """Name the earlier patch whose change has taken a hunk's place away."""
        # Hunk 0 is the file as a whole: a file that the patch adds, or that must be there.
        hunks = (file.hunks[hunk - 1],) if hunk else file.hunks
        single = diff.FileDiff(file.path, file.added, hunks)
        fitted = _fits(single, self.stock(file.path))
        for patch, _, content in self._history.get(file.path, ()):
            fits = _fits(single, content)
            if fitted and not fits:
                return patch
            fitted = fits
        return None

    def compile_errors(self) -> list[Conflict]:
        """Compile every changed file: a patch that breaks the syntax is a conflict."""
        conflicts = []
        for path, history in sorted(self._history.items()):
            patch, variant, content = history[-1]
            try:
                with warnings.catch_warnings():
                    # What the compiler thinks of upstream's own lines is no news here.
                    warnings.simplefilter("ignore")
                    compile(content, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                message = f"the patched file does not compile: {error}"
                conflicts.append(Conflict(patch, variant, path, 0, message))
        return conflicts

    def name_clashes(self) -> list[Conflict]:
        """Find files that many file systems take for one, as their names differ in case only."""
        conflicts = []
        seen: dict[str, str] = {}
        for path, history in sorted(self._history.items()):
            other = seen.setdefault(path.casefold(), path)
            if other != path:
                patch, variant, _ = history[0]
                message = f"differs from {other} in case only; some file systems keep one of them"
                conflicts.append(Conflict(patch, variant, path, 0, message))
        return conflicts

    def modules(self) -> tuple[Module, ...]:
        """Return every changed file as it will be served."""
        return tuple(
            self._module(path, [patch for patch, _, _ in history], history[-1][2])
            for path, history in sorted(self._history.items())
        )

    def _module(self, path: str, patches: Sequence[str], content: bytes) -> Module:
        served = content if content.endswith(b"\n") else content + b"\n"
        return Module(path, self.stock(path), served + _notice(patches), tuple(patches))


def _notice(patches: Sequence[str]) -> bytes:
    """Tell that the file was changed (Apache-2.0, section 4b), at its end: line numbers stay."""
    lines = ["", "# Changed by vllm-nemo, which serves this file in place of vLLM's; patches:"]
    lines += [f"#   {patch}" for patch in patches]
    return "".join(f"{line}\n" for line in lines).encode()


def _fits(file: diff.FileDiff, content: bytes | None) -> bool:
    try:
        diff.apply(file, content)
    except diff.MisfitError:
        return False
    return True


def _there_already(file: diff.FileDiff, content: bytes | None) -> bool:
    """Tell whether a file has what a diff would bring: the diff's reverse fits."""
    if file.added:
        return content == diff.apply(file, None)[0]
    return _fits(file.reversed(), content)


def apply_patch(
    patch: Patch, tree: Tree, conflicts: list[Conflict], *, present: bool
) -> Outcome | None:
    """Apply one patch to the tree, whole or not at all; what is wrong goes to ``conflicts``."""
    version = tree.base.version
    variant = patch.variant(version)
    if variant is None:
        oldest = patch.variants[0].release
        message = f"no variant for vLLM {version}; the oldest is for {oldest}"
        conflicts.append(Conflict(patch.id, str(oldest), "", 0, message))
        return None
    name = str(variant.release)
    there = [file.path for file in variant.files if _there_already(file, tree.current(file.path))]
    faults: list[Conflict] = []
    contents: dict[str, bytes] = {}
    offsets: dict[str, tuple[int, ...]] = {}
    for file in variant.files:
        if present and file.path not in there:
            message = "NRL_VLLM_PRESENT names this patch, but the base does not carry it here"
            faults.append(Conflict(patch.id, name, file.path, 0, message))
        elif not present and file.path in there:
            by_base = _there_already(file, tree.stock(file.path))
            message = _IN_THE_BASE if by_base else "an earlier patch has brought this change"
            faults.append(Conflict(patch.id, name, file.path, 0, message))
        elif not present:
            try:
                contents[file.path], offsets[file.path] = diff.apply(file, tree.current(file.path))
            except diff.MisfitError as error:
                faults += _conflicts(patch.id, name, file, tree, error)
    if faults:
        conflicts += faults
        return None
    if present:
        return Outcome(patch, PRESENT, "named in NRL_VLLM_PRESENT", variant=variant)
    tree.write(patch.id, name, contents)
    notes = {str(release): text for release, text in patch.notes.items()}
    note = notes.get(version.base_version, "")
    return Outcome(patch, APPLIED, note=note, variant=variant, offsets=offsets)


_IN_THE_BASE = (
    "the base has this change already. If upstream brought it, end the patch: narrow `vllm` and "
    "give the reason under [not-needed]. If a fork did, name the patch in NRL_VLLM_PRESENT."
)


def _conflicts(
    patch: str, variant: str, file: diff.FileDiff, tree: Tree, error: diff.MisfitError
) -> Iterator[Conflict]:
    for misfit in error.misfits:
        other = tree.displaced_by(file, misfit.hunk)
        blame = f"conflicts with {other}, which comes before it: " if other else ""
        message = f"{blame}{misfit.message}"
        yield Conflict(patch, variant, file.path, misfit.hunk, message, misfit.detail)
