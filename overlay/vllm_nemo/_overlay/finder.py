"""Serve the overlay's modules: what the finder in ``sys.meta_path`` does with a ``vllm`` name.

Everything that this module needs is imported at its top, because ``find_spec`` runs with the
import lock held (see ``vllm_nemo.import_unlocked``). It takes no lock of its own for the same
reason; what it remembers are single assignments that another thread may well repeat.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_nemo._overlay import files
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.stock import (
    check_stock,
    directory_of,
    mismatch,
    not_a_source_file,
    stock_spec,
)
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.readers import FileReader
    from types import ModuleType

    from _typeshed import ReadableBuffer

    from vllm_nemo._overlay.manifest import Manifest, Module

# Settled by the first vllm name that this process imports, so that it cannot change half-way.
_switched_on: bool | None = None
_checked: Path | None = None


def is_switched_on() -> bool:
    """Read the switch, once: whether this process is to have the overlay or stock vLLM."""
    global _switched_on  # noqa: PLW0603
    if _switched_on is None:
        value = os.environ.get(OVERLAY, "")
        if value not in ("", "on", "off"):
            raise OverlayError(
                f"{OVERLAY} is {value!r}; it can be 'on' (or not set: the overlay is served) or "
                "'off' (stock vLLM)."
            )
        _switched_on = value != "off"
    return _switched_on


def find_spec(fullname: str, path: object, target: ModuleType | None) -> ModuleSpec | None:
    """Return the spec of a served module, None for one that the overlay leaves alone."""
    if not is_switched_on():
        return None
    manifest = load_manifest()
    if fullname == "vllm":
        stock = stock_spec(fullname, path, target)
        if stock is None:
            return None
        check_base(manifest, directory_of(stock))
    else:
        if _checked is None:
            _check_late(manifest)
        if fullname not in manifest.modules:
            return None
        stock = stock_spec(fullname, path, target)
    module = manifest.modules.get(fullname)
    return stock if module is None else _served_spec(manifest, module, stock)


def check_base(manifest: Manifest, directory: Path) -> None:
    """Hold all stock files against the manifest and remember where they were found."""
    global _checked  # noqa: PLW0603
    check_stock(manifest, directory)
    _checked = directory


def _check_late(manifest: Manifest) -> None:
    """Check a vLLM that was imported before the overlay's finder was there."""
    strays = stray_modules(manifest)
    if strays:
        raise half_patched(strays)
    vllm = sys.modules.get("vllm")
    for directory in getattr(vllm, "__path__", ()):
        check_base(manifest, Path(directory))
        break


def stray_modules(manifest: Manifest) -> dict[str, str]:
    """Return the patched modules that are in this process from elsewhere, and from where."""
    strays = {}
    for name, module in manifest.modules.items():
        loaded = sys.modules.get(name)
        if loaded is not None:
            origin = _origin(loaded)
            if origin != str(manifest.served_file(module)):
                strays[name] = origin or "no file"
    return strays


def _origin(module: ModuleType) -> str | None:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    return origin if isinstance(origin, str) else None


def half_patched(strays: Mapping[str, str]) -> OverlayError:
    """Return the error for a process that has loaded stock modules in place of patched ones."""
    return OverlayError(
        "vllm-nemo is installed, but this process runs vLLM modules that it does not serve:\n"
        + "".join(f"  {name} from {origin}\n" for name, origin in strays.items())
        + "They were imported before the overlay was active, or by an import hook in front of it. "
        "Import vllm_nemo before anything that imports vLLM (needed under `python -S`, or where "
        "vllm-nemo is only on PYTHONPATH), and see `vllm-nemo doctor`. "
        f"{OVERLAY}=off runs stock vLLM, without any patch."
    )


def _served_spec(manifest: Manifest, module: Module, stock: ModuleSpec | None) -> ModuleSpec:
    file = manifest.served_file(module)
    loader: SourceFileLoader
    locations: list[str] | None
    if module.stock is None:
        # An added package's own directory leads to its modules too.
        if stock is not None and stock.origin != str(file):
            raise _wrong_stock(manifest, module, stock.origin, files.UNEXPECTED)
        loader = _loader_class(SourceFileLoader)(module.name, str(file))
        locations = [str(file.parent)] if module.package else None
    else:
        if stock is None or stock.origin is None:
            raise _wrong_stock(manifest, module, None, files.MISSING)
        if not isinstance(stock.loader, SourceFileLoader):
            raise not_a_source_file(module.name, stock)
        state = files.file_state(Path(stock.origin), module.stock)
        if state != files.OK:
            raise _wrong_stock(manifest, module, stock.origin, state)
        cls = _loader_class(type(stock.loader))
        loader = cls.__new__(cls)
        # Whatever a path hook's loader was given, its successor has too, without a guess at the
        # arguments of its constructor.
        loader.__dict__.update(stock.loader.__dict__, path=str(file), _vllm_nemo_stock=stock.loader)
        locations = stock.submodule_search_locations
    state = files.file_state(file, module.served)
    if state != files.OK:
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} cannot serve {module.name}: {file} is {state} since it "
            "was built.\nReinstall the overlay: pip install --force-reinstall --no-deps "
            f'"vllm-nemo=={manifest.overlay}"'
        )
    loader.__dict__["_vllm_nemo_sha256"] = module.served
    spec = ModuleSpec(module.name, loader, origin=str(file))
    spec.submodule_search_locations = locations
    spec.has_location = True
    return spec


def _wrong_stock(
    manifest: Manifest, module: Module, origin: str | None, state: str
) -> OverlayError:
    path = module.path if origin is None else f"{module.path} ({origin})"
    if _checked is None:
        return OverlayError(f"vllm-nemo cannot serve {module.name}: {path} is {state}")
    return mismatch(manifest, _checked, {path: state})


@functools.cache
def _loader_class(base: type[SourceFileLoader]) -> type[SourceFileLoader]:
    """Return the loader of served modules that is also a loader of the stock module's class."""
    return type(f"Served{base.__name__}", (_Served, base), {"__module__": __name__})


class _Served(SourceFileLoader):
    """Load a served file in place of a stock one."""

    _vllm_nemo_stock: SourceFileLoader | None = None
    _vllm_nemo_sha256: str

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Return the size and, in place of the time of change, a number made from the content.

        A cached .pyc is taken for a source file of the same time and size. Installers and image
        builders set times at will, and overlays of one size do occur, so the time is not that of
        the file: only bytecode compiled from exactly this content fits.
        """
        stats = super().path_stats(path)
        return {**stats, "mtime": int(self._vllm_nemo_sha256[:8], 16)}

    def get_data(self, path: str) -> bytes:
        """Read a file, except for bytecode that would be used without a look at that number."""
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

    def get_resource_reader(self, name: str | None = None) -> FileReader:
        """Find the data files of a package where they are: beside the stock module."""
        if self._vllm_nemo_stock is None:
            return super().get_resource_reader(name)
        return self._vllm_nemo_stock.get_resource_reader(name)
