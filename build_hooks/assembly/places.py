"""Where served modules find files: what patches say under ``[place]``, compared with the base."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from build_hooks.assembly import place
from build_hooks.diffs import paths
from build_hooks.errors import Conflict
from build_hooks.queues.fields import STOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Place

_UNDECIDED = (
    "the module finds files by its own place, and a served module lies in the overlay, without "
    'vLLM\'s data. Decide under [place] in patch.toml: "{path}" = "stock" lets it look '
    'beside vLLM\'s own file; = ["configs"] keeps its place, with a copy of that data of vLLM; '
    "= [] if it needs none"
)
_BY_HAND = '[place] is "stock", which can replace only a plain `__file__`: change the line'
_NOT_FOUND = (
    "no module would find this data: vLLM looks beside its own files. Name the module that reads "
    "it under [place] in patch.toml, with the data"
)
# What the overlay serves in another way, or cannot serve.
_NO_DATA = (".py", ".pyc", ".so")
# More than any directory of data has; a wheel is no place for a whole vLLM.
_MOST = 4096


class Files(Protocol):
    """The files of a base as patches leave them, of which ``tree.Tree`` is the one kind."""

    @property
    def base(self) -> Base:
        """The base."""

    def stock(self, path: str) -> bytes | None:
        """Return a file as the base has it."""

    def current(self, path: str) -> bytes | None:
        """Return a file as the patches so far leave it."""

    def keep(self, patch: str, variant: str, path: str) -> None:
        """Serve a module although no hunk changes it."""

    def changed(self) -> Iterator[tuple[str, str, str, bytes]]:
        """Go through the files of the overlay."""


class Places:
    """The modules of a tree that find files by their own place.

    Attributes:
        copies: The data of the base that the overlay keeps beside a module: for each path, the
            patch that asks for it, and the content.
    """

    def __init__(self, tree: Files) -> None:
        self.copies: dict[str, tuple[str, bytes]] = {}
        self._tree = tree
        # For each module, the patch that says where it finds files, and where.
        self._answers: dict[str, tuple[str, Place]] = {}

    def settle(self, patch: str, variant: str, answers: Mapping[str, Place]) -> Iterator[Conflict]:
        """Take over what a patch says, after its diffs have been applied.

        Args:
            patch: The id of the patch.
            variant: The variant that was applied.
            answers: The ``[place]`` table of the patch.

        Yields:
            What is wrong with it on this base.
        """
        for path, answer in answers.items():
            other, known = self._answers.get(path, ("", answer))
            fault = self._fault(path, answer, other, known)
            if fault:
                yield _conflict(patch, variant, path, fault, other)
            elif isinstance(answer, str) or isinstance(known, str):
                self._answers[path] = (patch, STOCK)
            else:
                names = tuple(dict.fromkeys((*known, *answer)))
                self._answers[path] = (patch, names)
                self._tree.keep(patch, variant, path)
                for name in names:
                    yield from self._copy(patch, variant, path, name)

    def _fault(self, path: str, answer: Place, other: str, known: Place) -> str:
        if self._tree.current(path) is None:
            return "[place] names it, and there is no such file"
        if answer == STOCK and self._tree.stock(path) is None:
            return f'the overlay adds it, so [place] cannot be "{STOCK}"'
        if STOCK in (answer, known) and answer != known:
            return f"[place] is {json.dumps(answer)} here, and {json.dumps(known)} in {other}"
        return ""

    def _copy(self, patch: str, variant: str, path: str, name: str) -> Iterator[Conflict]:
        """Copy the data of one name that a module looks for."""
        wanted = _beside(path, name)
        found = [file for file in self._tree.base.below(wanted) if not file.endswith(_NO_DATA)]
        if not found and not wanted.endswith(_NO_DATA) and self._tree.stock(wanted) is not None:
            found = [wanted]
        changed = {file for file, *_ in self._tree.changed()}
        if len(found) > _MOST:
            message = f"[place] names {name}, which has {len(found)} files; {_MOST} at most"
            yield _conflict(patch, variant, path, message)
            return
        if not found and not any(_covers(wanted, file) for file in changed):
            message = f"[place] names {name}, and no data is there"
            yield _conflict(patch, variant, path, message)
        for file in found:
            content = self._tree.stock(file)
            if content is not None and file not in changed:
                self.copies.setdefault(file, (patch, content))

    def conflicts(self) -> Iterator[Conflict]:
        """Find modules whose place nobody has decided upon, and data that no module would find.

        Call it when every file compiles.

        Yields:
            The conflicts.
        """
        for path, patch, variant, content in self._tree.changed():
            fault = self._undecided(path, content)
            if not paths.is_module(path):
                fault = "" if self._is_found(path) else self._lost(path)
            if fault:
                yield _conflict(patch, variant, path, fault)

    def _undecided(self, path: str, content: bytes) -> str:
        _, answer = self._answers.get(path, ("", None))
        if not paths.is_module(path) or isinstance(answer, tuple):
            return ""
        uses = [use for use in place.uses(content) if answer is None or not use.plain]
        if not uses:
            return ""
        asked = ", ".join(f"line {use.line} ({use.asks})" for use in uses)
        return f"{asked}: {_BY_HAND if answer else _UNDECIDED.format(path=path)}"

    def _is_found(self, path: str) -> bool:
        """Tell whether a module of the overlay can find data that is added."""
        for module, (_, answer) in self._answers.items():
            names = answer if isinstance(answer, tuple) else ()
            if any(_covers(_beside(module, name), path) for name in names):
                return True
        # In a package that the overlay adds, all looks are into the overlay.
        parents = path.split("/")[:-1]
        packages = ("/".join(parents[:n]) + "/__init__.py" for n in range(len(parents), 1, -1))
        nearest = next((name for name in packages if self._tree.current(name) is not None), "")
        return self._tree.current(nearest) is not None and self._tree.stock(nearest) is None

    def _lost(self, path: str) -> str:
        readers = self.readers(path)
        answers = ", ".join(f'"{module}" = ["{name}"]' for module, name in readers.items())
        return _NOT_FOUND + (f", perhaps: {answers}" if answers else ': "vllm/...py" = ["configs"]')

    def proposed(self, changed: Collection[str]) -> dict[str, Place]:
        """Propose answers for files that ``conflicts`` would name.

        Args:
            changed: The files.

        Returns:
            An answer for each module that needs one and allows a guess: one that looks for data
            that is added keeps its place, any other looks beside vLLM's own file.
        """
        answers: dict[str, Place] = {}
        for path in changed:
            if not paths.is_module(path) and not self._is_found(path):
                for module, name in self.readers(path).items():
                    known = answers.get(module, ())
                    answers[module] = tuple(dict.fromkeys((*known, name)))
        for path in changed:
            content = self._tree.current(path)
            there = self._tree.stock(path) is not None
            if there and content is not None and self._undecided(path, content):
                answers.setdefault(path, STOCK)
        return answers

    def readers(self, path: str) -> dict[str, str]:
        """Find the modules of the base that look for data, as far as their sources tell.

        Args:
            path: The data, as ``vllm/...``.

        Returns:
            For each module, the name that it looks for beside it: a file or a directory. Empty if
            the base cannot be searched, or no module says the name.
        """
        *parents, own = path.split("/")
        found: dict[str, str] = {}
        # A file beside the module, or one in a directory beside it.
        for directory, name in (("/".join(parents), own), ("/".join(parents[:-1]), parents[-1])):
            for module in self._tree.base.below(directory):
                if paths.is_module(module) and module.count("/") == directory.count("/") + 1:
                    content = self._tree.stock(module)
                    if content is not None and place.looks_for(content, name):
                        found.setdefault(module, name)
        return found

    def redirected(self, path: str, content: bytes) -> bytes:
        """Return the source of a module as it is served."""
        _, answer = self._answers.get(path, ("", None))
        if answer != STOCK:
            return content
        try:
            return place.redirect(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # It does not compile, which is a conflict of its own.
            return content


def _conflict(patch: str, variant: str, path: str, message: str, other: str = "") -> Conflict:
    return Conflict(patch, variant, path, 0, message, other=other, ports=False)


def _beside(module: str, name: str) -> str:
    return f"{module.rpartition('/')[0]}/{name}"


def _covers(wanted: str, path: str) -> bool:
    """Tell whether a path is the file that is wanted, or lies in the directory that is."""
    return path == wanted or path.startswith(f"{wanted}/")
