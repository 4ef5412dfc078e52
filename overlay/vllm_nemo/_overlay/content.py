"""Loaders that take bytecode for a source file by its content, and not by its time.

Python takes cached bytecode for that of a source file when time and size agree, or, by choice of
whoever compiled it, without a look at the source. Installers and image builders set times at will,
and files of one size do occur. So this package's own modules are loaded by ``ByContent``, and the
served ones by a loader of the same base.

``vllm_nemo`` itself, ``vllm_nemo._overlay`` and this module come before that; ``whole`` compares
their bytecode with what their source files compile to.
"""

from __future__ import annotations

import _imp
import contextlib
import os
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec

    from _typeshed import ReadableBuffer

# What Python itself loads.
FIRST = ("vllm_nemo", "vllm_nemo._overlay", __name__)
# Any number: it goes into the hashes that are compared.
_KEY = 0


class OwnBytecode(SourceFileLoader):
    """Use no bytecode but what such a loader has written, and write it whole or not at all."""

    def get_data(self, path: str) -> bytes:
        """Read a file.

        Raises:
            OSError: if it cannot be read, or is bytecode that Python would use without a look at
                the number that ``path_stats`` gives.
        """
        data = super().get_data(path)
        # Flags of PEP 552: not 0 when the bytecode goes by a hash of the source, which an
        # interpreter may have been told not to compare.
        if path != self.path and path.endswith(".pyc") and data[4:8] != bytes(4):
            raise OSError(f"{path} is not checked against its source")
        return data

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Write bytecode whole or not at all.

        importlib renames what it has written into place without a look at how much that was; on a
        full disk, a file that is cut short would then be read, and fail, at every later start.
        """
        whole = f"{path}.{os.getpid()}"
        super().set_data(whole, data, _mode=_mode)
        with contextlib.suppress(OSError):
            if os.stat(whole).st_size == len(memoryview(data)):  # noqa: PTH116
                os.replace(whole, path)  # noqa: PTH105
                return
            os.unlink(whole)  # noqa: PTH108


class ByContent(OwnBytecode):
    """Load a module of this package."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Return the size and, in place of the time of change, a number made from the content."""
        source = super().get_data(path)
        return {
            "mtime": int.from_bytes(_imp.source_hash(_KEY, source)[:4], "little"),
            "size": len(source),
        }


def by_content(spec: ModuleSpec) -> ModuleSpec:
    """Give a spec of this package a loader that goes by the content of the source file.

    Args:
        spec: The spec as Python has found it. That of a zip file, or of somebody's loader, stays.

    Returns:
        The same spec.
    """
    loader = spec.loader
    if type(loader) is SourceFileLoader:
        spec.loader = ByContent(loader.name, loader.path)
    return spec
