"""The files of a base while patches are applied to them."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.assembly.places import Places
from build_hooks.diffs import paths
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.model import FileDiff
from build_hooks.diffs.owners import Clash, Ownership
from build_hooks.diffs.reader import parse
from build_hooks.diffs.writer import make
from build_hooks.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from build_hooks.bases.base import Base


@dataclass(frozen=True)
class Module:
    """One file that the overlay serves.

    Attributes:
        path: The file, as ``vllm/...``.
        stock: Its content in the base; None if the overlay adds it.
        served: Its content in the overlay.
        patches: The ids of the patches that changed it, in their order.
    """

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
class Data:
    """One data file of the overlay: one that it adds, or a copy that a served module looks for.

    Attributes:
        path: The file, as ``vllm/...``.
        stock: Its content in the base, where it is a copy; else None.
        served: Its content in the overlay.
        patches: The id of the patch that adds it, or whose ``[place]`` asks for the copy.
    """

    path: str
    stock: bytes | None
    served: bytes
    patches: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """What a patch made of one file: its diff, the content, by how much each hunk had moved."""

    file: FileDiff
    content: bytes
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, path: str, before: bytes | None, after: bytes) -> Change:
        """Describe a change of which only the outcome is known.

        Args:
            path: The file.
            before: Its content before; None if there was no such file.
            after: Its content after.

        Raises:
            DiffError: if no patch could make it.
        """
        (file,) = parse(make(path, before, after).encode())
        return cls(file, *apply(file, before))


class Tree:
    """The base's files as the patches applied so far leave them."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self._stock: dict[str, bytes | None] = {}
        # For each file, its content after each patch that changed it.
        self._history: dict[str, list[tuple[str, str, bytes]]] = {}
        self._owned: dict[str, Ownership] = {}
        self.places = Places(self)

    def stock(self, path: str) -> bytes | None:
        """Return a file as the base has it.

        Args:
            path: The file, as ``vllm/...``.
        """
        if path not in self._stock:
            self._stock[path] = self.base.read(path)
        return self._stock[path]

    def current(self, path: str) -> bytes | None:
        """Return a file as the patches so far leave it.

        Args:
            path: The file, as ``vllm/...``.
        """
        history = self._history.get(path)
        return history[-1][2] if history else self.stock(path)

    def owners(self, path: str) -> list[str | None]:
        """Return, for each line of a file, the patch that put it in; None for the base's own.

        Args:
            path: The file, as ``vllm/...``.
        """
        return self._ownership(path).owners

    def undone(self, patch: str, amends: Collection[str], change: Change) -> list[Clash]:
        """Find the lines in which a patch's change of a file undoes an earlier patch.

        Args:
            patch: The id of the patch.
            amends: Ids of patches that it may undo.
            change: What it makes of the file.
        """
        owned = self._ownership(change.file.path)
        return owned.apply(change.file, change.offsets, patch, amends)[1]

    def write(self, patch: str, variants: Mapping[str, Version], changes: Iterable[Change]) -> None:
        """Take over what a patch makes of its files.

        Args:
            patch: The id of the patch.
            variants: For each path, the variant that its diff is from.
            changes: What the patch makes of each file.
        """
        for change in changes:
            path = change.file.path
            owned, _ = self._ownership(path).apply(change.file, change.offsets, patch)
            self._owned[path] = owned
            entry = (patch, str(variants[path]), change.content)
            self._history.setdefault(path, []).append(entry)

    def keep(self, patch: str, variant: str, path: str) -> None:
        """Serve a module although no hunk changes it.

        Args:
            patch: The id of the patch that asks for it.
            variant: The variant of that patch.
            path: The module, which is there.
        """
        content = self.current(path)
        if path not in self._history and content is not None:
            self._history[path] = [(patch, variant, content)]

    def changed(self) -> Iterator[tuple[str, str, str, bytes]]:
        """Go through the files of the overlay.

        Yields:
            Each path with the last patch that wrote it, the variant of that, and the content.
        """
        for path, history in sorted(self._history.items()):
            patch, variant, content = history[-1]
            yield path, patch, variant, content

    def _ownership(self, path: str) -> Ownership:
        return self._owned.get(path) or Ownership(self.stock(path))

    def last_writer(self, path: str) -> str:
        """Return the patch that changed a file last; empty if none has.

        Args:
            path: The file, as ``vllm/...``.
        """
        history = self._history.get(path)
        return history[-1][0] if history else ""

    def displaced_by(self, file: FileDiff, hunk: int) -> str | None:
        """Find the earlier patch whose change has taken a hunk's place away.

        Args:
            file: The diff that does not fit.
            hunk: The number of its hunk, from 1; 0 stands for the file as a whole: one that the
                patch adds, or that must be there.

        Returns:
            The id of that patch; None if it fits no better without the earlier patches.
        """
        hunks = (file.hunks[hunk - 1],) if hunk else file.hunks
        single = FileDiff(file.path, file.added, hunks)
        fitted = fits(single, self.stock(file.path))
        for patch, _, content in self._history.get(file.path, ()):
            still = fits(single, content)
            if fitted and not still:
                return patch
            fitted = still
        return None

    def compile_errors(self) -> list[Conflict]:
        """Compile every changed module, and read every JSON file; other data is taken as it is.

        Returns:
            A conflict for each that is no longer Python, or no JSON.
        """
        conflicts = []
        for path, patch, variant, content in self.changed():
            try:
                _check_syntax(path, content)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                what = "the patched file does not compile" if paths.is_module(path) else "not JSON"
                message = f"{what}: {error}"
                conflicts.append(Conflict(patch, variant, path, 0, message))
        return conflicts

    def name_clashes(self) -> list[Conflict]:
        """Find files that many file systems take for one.

        Returns:
            A conflict for each whose name differs from another's in case only.
        """
        conflicts = []
        seen: dict[str, str] = {}
        for path, history in sorted(self._history.items()):
            other = seen.setdefault(path.casefold(), path)
            if other != path:
                patch, variant, _ = history[0]
                message = f"differs from {other} in case only; some file systems keep one of them"
                conflicts.append(Conflict(patch, variant, path, 0, message, ports=False))
        return conflicts

    def files(self) -> tuple[Module | Data, ...]:
        """Return every changed module as it will be served, and every data file."""
        made: dict[str, Module | Data] = {
            path: Data(path, content, content, (patch,))
            for path, (patch, content) in self.places.copies.items()
        }
        for path, history in self._history.items():
            ids = list(dict.fromkeys(patch for patch, _, _ in history))
            made[path] = self._file(path, ids, history[-1][2])
        return tuple(file for _, file in sorted(made.items()))

    def _file(self, path: str, patches: Sequence[str], content: bytes) -> Module | Data:
        if not paths.is_module(path):
            return Data(path, None, content, tuple(patches))
        content = self.places.redirected(path, content)
        served = content if not content or content.endswith(b"\n") else content + b"\n"
        return Module(path, self.stock(path), served + _notice(patches), tuple(patches))


def _check_syntax(path: str, content: bytes) -> None:
    if path.endswith(".json"):
        json.loads(content)
    elif paths.is_module(path):
        with warnings.catch_warnings():
            # What the compiler thinks of upstream's own lines is no news here.
            warnings.simplefilter("ignore")
            compile(content, path, "exec", dont_inherit=True)


def _notice(patches: Sequence[str]) -> bytes:
    """Tell that the file was changed (Apache-2.0, section 4b), at its end: line numbers stay."""
    lines = ["", "# Changed by vllm-nemo, which serves this file in place of vLLM's; patches:"]
    lines += [f"#   {patch}" for patch in patches]
    return "".join(f"{line}\n" for line in lines).encode()


def fits(file: FileDiff, content: bytes | None) -> bool:
    """Tell whether a diff applies to a content.

    Args:
        file: The diff.
        content: The content; None if there is no such file.
    """
    try:
        apply(file, content)
    except MisfitError:
        return False
    return True


def brought_already(file: FileDiff, content: bytes | None) -> bool:
    """Tell whether a content has what a diff would bring: the reverse of the diff fits.

    Args:
        file: The diff.
        content: The content; None if there is no such file.
    """
    if file.added:
        return content == apply(file, None)[0]
    return fits(file.reversed(), content)
