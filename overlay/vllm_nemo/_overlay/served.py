"""The overlay's files held against its manifest and against stock vLLM, without importing vLLM."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_nemo._overlay import files
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.stock import mismatch, stock_file, stock_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_nemo._overlay.manifest import Data, Manifest, Module


@dataclass(frozen=True)
class ModuleState:
    """A file of the overlay: its state, and that of the stock file that it stands in for."""

    module: Module | Data
    stock: str
    served: str

    @property
    def holds(self) -> bool:
        """Whether both files are what the manifest says."""
        return self.stock == self.served == files.OK


def module_states(manifest: Manifest, directory: Path | None) -> tuple[ModuleState, ...]:
    """Return the state of every file, given the directory of ``vllm`` if there is one."""
    return tuple(
        ModuleState(
            module,
            stock=stock_state(directory, module),
            served=files.file_state(manifest.served_file(module), module.served),
        )
        for module in manifest.files
    )


def diffs(
    manifest: Manifest, directory: Path, patch_id: str | None
) -> Iterator[tuple[Module | Data, str]]:
    """Give the unified diff, stock to served, of each file or of those that one patch changes.

    Raises OverlayError when a file is not the one in the manifest: the difference would mislead.
    """
    for module in manifest.files:
        if patch_id is not None and patch_id not in module.patches:
            continue
        state = stock_state(directory, module)
        if state != files.OK:
            raise mismatch(manifest, directory, {module.path: state})
        served_file = manifest.served_file(module)
        served_state = files.file_state(served_file, module.served)
        if served_state != files.OK:
            raise OverlayError(f"{served_file} is {served_state} since it was built.")
        stock = [] if module.stock is None else _lines(stock_file(directory, module))
        yield (
            module,
            "".join(
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in difflib.unified_diff(
                    stock,
                    _lines(served_file),
                    "/dev/null" if module.stock is None else f"a/{module.path}",
                    f"b/{module.path}",
                )
            ),
        )


def _lines(file: Path) -> list[str]:
    # Not splitlines(), which also splits at characters that end no line of a diff.
    text = file.read_bytes().decode("utf-8", errors="surrogateescape")
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
