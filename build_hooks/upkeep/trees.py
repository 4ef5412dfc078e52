"""Trees of merged files: what a port leaves for a person, with the state that it started from.

A tree has the files of one patch as a person is to leave them. Beside them, below ``.start``, are
the same files without the patch. The difference of the two is the patch, whatever other patches
have made of the files meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.diffs.paths import is_data, is_module
from build_hooks.errors import BuildError
from build_hooks.upkeep.merge import is_marked, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from build_hooks.assembly.tree import Tree

_START = ".start"


@dataclass(frozen=True)
class PatchTree:
    """The tree of one patch, in a directory of its own."""

    home: Path

    @property
    def shown(self) -> str:
        """The directory as a message shows it: relative, if it lies below the current one."""
        here = Path.cwd()
        inside = self.home.is_relative_to(here)
        return str(self.home.relative_to(here) if inside else self.home)

    @property
    def remembers(self) -> bool:
        """Whether the tree has the state that it started from."""
        return (self.home / _START).is_dir()

    @property
    def unresolved(self) -> list[str]:
        """The files in which a conflict is still marked."""
        return [path for path, content in self.files().items() if is_marked(content)]

    def files(self) -> dict[str, bytes]:
        """Return the files as they are now, by their paths."""
        return _read(self.home)

    def write(self, files: Mapping[str, bytes], start: Mapping[str, bytes | None]) -> None:
        """Write the files, and the state that they start from.

        Args:
            files: The files, by path.
            start: What they start from; None for a file that is new.
        """
        (self.home / _START).mkdir(parents=True, exist_ok=True)
        for directory, contents in ((self.home, files), (self.home / _START, start)):
            for path, content in contents.items():
                if content is not None:
                    file = directory / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)

    def onto(self, state: Tree) -> dict[str, bytes]:
        """Return the patch's files for a state that may be another than the tree started from.

        Args:
            state: The files as the earlier patches leave them.

        Raises:
            BuildError: if there is nothing in the tree, or a conflict is marked, or the patch
                conflicts with what other patches have done since. In the last case the tree then
                starts from the new state, with the conflicts marked.
        """
        files = self.files()
        if not files:
            raise BuildError(
                f"{self.shown} contains no vllm/...py, nor data: name the directory above vllm/"
            )
        unresolved = self.unresolved
        if unresolved:
            raise BuildError(f"{self.shown}: conflicts are still marked in {', '.join(unresolved)}")
        if not self.remembers:
            return files
        start = _read(self.home / _START)
        merged: dict[str, bytes] = {}
        conflicts = []
        for path, content in files.items():
            ours, ancestor = state.current(path), start.get(path)
            if path not in start or ours == ancestor:
                # The first: a file that a person has added, as the release has it but for a change.
                merged[path] = content
                continue
            merged[path], number = merge(ours or b"", ancestor or b"", content)
            if number:
                conflicts.append(path)
        if conflicts:
            self.write(merged, {path: state.current(path) for path in merged})
            raise BuildError(
                f"{', '.join(conflicts)}: other patches have changed the same lines since this "
                f"tree was made. Resolve the new markers below {self.shown}, then run this again."
            )
        return merged


def _read(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.glob("vllm/**/*"))
        if path.is_file() and (is_module(path.name) or is_data(path.name))
    }
