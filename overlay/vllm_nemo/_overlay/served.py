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
    """A file of the overlay and the states of its two files, which are words of ``files``.

    Attributes:
        module: The module, or the data file.
        stock: The state of the stock file that it replaces.
        served: The state of the file that is served.
    """

    module: Module | Data
    stock: str
    served: str

    @property
    def holds(self) -> bool:
        """Whether both files are the ones in the manifest."""
        return self.stock == self.served == files.OK


def module_states(manifest: Manifest, directory: Path | None) -> tuple[ModuleState, ...]:
    """Compare the files of every module, and every data file, with the manifest.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package, None if vLLM is not installed.

    Returns:
        The state of each module, in the order of the manifest.
    """
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
    """Compare stock files with the files that are served in their place.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.
        patch_id: The patch whose files to compare, None for all files.

    Yields:
        Each module or data file with its unified diff, from stock to served, which ``git apply``
        accepts.

    Raises:
        OverlayError: if a file is not the one in the manifest, so that the diff would mislead.
    """
    for module in manifest.files:
        if patch_id is not None and patch_id not in module.patches:
            continue
        if module.stock == module.served:
            # A copy of vLLM's data.
            continue
        state = stock_state(directory, module)
        if state != files.OK:
            raise mismatch(manifest, directory, {module.path: state})
        served_file = manifest.served_file(module)
        served_state = files.file_state(served_file, module.served)
        if served_state != files.OK:
            raise OverlayError(
                f"{served_file} is {served_state} since it was built.\n{manifest.repair}"
            )
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
    # splitlines() also splits at characters such as a form feed, which end no line of a diff.
    text = file.read_bytes().decode("utf-8", errors="surrogateescape")
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
