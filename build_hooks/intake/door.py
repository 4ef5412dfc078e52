"""What all patches of one import share: the tree, the user's options, what is wrong so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.errors import BuildError, Conflict
from build_hooks.intake import listing
from build_hooks.intake.model import IntakeError, Reason
from build_hooks.intake.paths import Reading, detect

if TYPE_CHECKING:
    from build_hooks.assembly.tree import Tree
    from build_hooks.intake.model import ForeignPatch


@dataclass(frozen=True)
class Options:
    """What the user says about how patches come in.

    Attributes:
        strip: Components to take off paths; None to find out.
        prefix: What to put before paths; None to find out.
        fuzz: Whether context may differ.
        drop_outside: Whether files outside of ``vllm/`` are left out.
        amends: Patches of the queue that the new ones may undo.
    """

    strip: int | None = None
    prefix: str | None = None
    fuzz: bool = False
    drop_outside: bool = False
    amends: tuple[str, ...] = ()


class Door:
    """What all patches of one import share."""

    def __init__(self, tree: Tree, options: Options) -> None:
        self.tree = tree
        self.options = options
        self.refused: list[tuple[Reason, str]] = []
        self.conflicts: list[Conflict] = []
        self.fuzz_helps = False
        # Files as the sources have them, with the white space that the queue does not keep.
        self.raw: dict[str, bytes] = {}
        # Files that a patch should have changed and did not; what follows has no ground.
        self.lost: set[str] = set()
        self.untried: list[str] = []
        self.new_ids: set[str] = set()
        self._names = listing.names(tree.base)
        self.directories = listing.directories(self._names)
        self._readings: dict[str, Reading] = {}

    def current(self, path: str) -> bytes | None:
        """Return a file as the patches so far leave it, those of this import as published.

        Args:
            path: The file, as ``vllm/...``.
        """
        return self.raw[path] if path in self.raw else self.tree.current(path)

    def exists(self, path: str) -> bool:
        """Tell whether a file is there; what leads out of the package is not looked for.

        Args:
            path: The file, as a patch names it.
        """
        if not path.startswith("vllm/") or {"", ".", ".."} & set(path.split("/")):
            return False
        return path in self._names or self.current(path) is not None

    def reading(self, patch: ForeignPatch, patches: Sequence[ForeignPatch]) -> Reading:
        """Find out how the paths of a patch's source are read.

        Args:
            patch: The patch.
            patches: All patches of the import.
        """
        if patch.fixed:
            return Reading(0)
        if patch.source not in self._readings:
            mine = [s for p in patches if p.source == patch.source for s in p.diff.sections]
            strip, prefix = self.options.strip, self.options.prefix
            self._readings[patch.source] = detect(mine, self.exists, strip, prefix)
        return self._readings[patch.source]

    def settle(self) -> None:
        """Raise what was found, all of it."""
        if self.refused:
            raise IntakeError(self.refused, sum(1 for c in self.conflicts if c.hunk))
        if self.conflicts:
            base = self.tree.base
            number = len(self.conflicts)
            what = f"{number} conflict{'' if number == 1 else 's'}"
            lines = [f"{what} with vLLM {base.version} ({base.origin}); nothing was imported:"]
            lines += [f"  {conflict}" for conflict in self.conflicts]
            if self.untried:
                lines.append(
                    f"Not tried, for they change the same files: {', '.join(self.untried)}"
                )
            if self.fuzz_helps:
                lines.append(
                    "--fuzz places hunks of which only some context differs, and marks them for "
                    "review."
                )
            raise BuildError("\n".join(lines))
