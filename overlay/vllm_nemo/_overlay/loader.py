"""The loader of served modules: their code from the overlay, their data where stock vLLM has it.

``finder`` imports it, so whatever it needs is imported at its top, too.
"""

from __future__ import annotations

import functools
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_nemo._overlay import loaded
from vllm_nemo._overlay.content import OwnBytecode
from vllm_nemo._overlay.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.readers import FileReader
    from types import ModuleType


def make_loader(
    name: str, file: Path, root: Path, sha256: str, stock: SourceFileLoader | None
) -> SourceFileLoader:
    """Make the loader of a module that the overlay serves.

    It is a loader of the stock loader's class as well, and has whatever that one was given, without
    a guess at the arguments of its constructor. So what a path hook's loader does to every module,
    it does to the served ones.

    Args:
        name: The module's name, with its packages.
        file: The served file.
        root: The directory that holds all served files, below which their paths are vLLM's own.
        sha256: The digest of the served file, in hex.
        stock: The loader of the stock module, None where vLLM has no such module.

    Returns:
        The loader.
    """
    loader: SourceFileLoader
    if stock is None:
        loader = _loader_class(SourceFileLoader)(name, str(file))
    else:
        cls = _loader_class(type(stock))
        loader = cls.__new__(cls)
        loader.__dict__.update(stock.__dict__, path=str(file))
    loader.__dict__.update(_vllm_nemo_stock=stock, _vllm_nemo_root=root, _vllm_nemo_sha256=sha256)
    return loader


@functools.cache
def _loader_class(base: type[SourceFileLoader]) -> type[SourceFileLoader]:
    return type(f"Served{base.__name__}", (_Served, base), {"__module__": __name__})


class _Served(OwnBytecode):
    """Load a served file in place of a stock one."""

    _vllm_nemo_stock: SourceFileLoader | None
    _vllm_nemo_root: Path
    _vllm_nemo_sha256: str

    @property
    def stock_file(self) -> str:
        """The path of vLLM's own file.

        A build writes ``__spec__.loader.stock_file`` into a module that looks for files beside it
        (``[place]`` in patch.toml).

        Raises:
            AttributeError: if vLLM has no such module.
        """
        if self._vllm_nemo_stock is None:
            raise AttributeError(f"vLLM has no {self.name}")
        return self._vllm_nemo_stock.path

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, unless something else has loaded a patched one, before or meanwhile.

        Raises:
            OverlayError: if so.
        """
        loaded.check(load_manifest())
        super().exec_module(module)
        loaded.check(load_manifest())

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Return the size and, in place of the time of change, a number made from the content.

        A cached .pyc is taken for a source file of the same time and size. Installers and image
        builders set times at will, and overlays of one size do occur, so the time is not that of
        the file: only bytecode compiled from exactly this content fits.
        """
        stats = super().path_stats(path)
        return {**stats, "mtime": int(self._vllm_nemo_sha256[:8], 16)}

    def get_data(self, path: str) -> bytes:
        """Read a file: the overlay's, or vLLM's own where the overlay has none of that name.

        ``pkgutil.get_data`` and programs join a name to the directory of ``__file__``, which is in
        the overlay, while vLLM's data files are where they were installed.

        Args:
            path: The path of the file, as importlib or a program asks for it.

        Returns:
            Its content.

        Raises:
            OSError: if the file cannot be read, or is bytecode that Python would use without a look
                at the number that ``path_stats`` gives.
        """
        path = os.fspath(path)
        try:
            return super().get_data(path)
        except FileNotFoundError:
            stock = self._vllm_nemo_stock
            place = None if stock is None else self._beside(stock, path)
            if stock is None or place is None or not place.exists():
                raise
            return stock.get_data(str(place))

    def _beside(self, stock: SourceFileLoader, path: str) -> Path | None:
        """Return where a data file would be beside the stock module.

        None for the served file itself and for bytecode, which nothing of vLLM may replace, and for
        a path that does not lead into the overlay.
        """
        own, asked = Path(self.path), Path(os.path.normpath(path))
        if asked == own or asked.suffix == ".pyc" or self._vllm_nemo_root not in asked.parents:
            return None
        return Path(stock.path).parent / os.path.relpath(asked, own.parent)

    def get_resource_reader(self, name: str | None = None) -> FileReader:
        """Find the data files of a package where they are: beside the stock module."""
        if self._vllm_nemo_stock is None:
            return super().get_resource_reader(name)
        return self._vllm_nemo_stock.get_resource_reader(name)
