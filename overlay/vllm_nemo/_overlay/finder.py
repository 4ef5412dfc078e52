"""Serve the overlay's modules: what the finder in ``sys.meta_path`` does with a ``vllm`` name.

Everything that this module needs is imported at its top, because ``find_spec`` runs with the
import lock held (see ``vllm_nemo.import_unlocked``). It takes no lock of its own for the same
reason: what it remembers is one assignment each, which another thread may repeat without harm.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay import files, loaded, whole
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.loader import make_loader
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.refusal import refused
from vllm_nemo._overlay.stock import (
    check_stock,
    directory_of,
    mismatch,
    not_a_source_file,
    stock_spec,
)
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from types import ModuleType

    from vllm_nemo._overlay.manifest import Manifest, Module

# The switch, read once, so that it cannot change after the first module has been served.
_switched_on: bool | None = None
# The directory of the ``vllm`` whose files have been compared with the manifest.
_checked: Path | None = None


def is_switched_on() -> bool:
    """Tell whether this process is to have the overlay, or stock vLLM.

    Returns:
        False only if ``NRL_VLLM_OVERLAY`` was "off" at the first call in this process.

    Raises:
        OverlayError: if ``NRL_VLLM_OVERLAY`` is neither "on" nor "off".
    """
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
    """Find the spec of a ``vllm`` module, as a finder of ``sys.meta_path`` does.

    Args:
        fullname: The module's name, with its packages.
        path: The ``__path__`` of its package, None for ``vllm`` itself.
        target: The module that is reloaded, if one is.

    Returns:
        The spec, with the served file as its origin if the manifest has the module; None to leave
        the name to the other finders. Its loader raises an OverlayError if the overlay does not
        match the vLLM that is installed, a file of it is not as it was built, or a patched module
        was loaded by somebody else.
    """
    try:
        return _find_spec(fullname, path, target)
    except OverlayError as error:
        stock = stock_spec(fullname, path, target)
        if stock is None and not _is_served(fullname):
            return None
        return refused(fullname, stock, str(error))


def _is_served(fullname: str) -> bool:
    try:
        return fullname in load_manifest().modules
    except OverlayError:
        return False


def _find_spec(fullname: str, path: object, target: ModuleType | None) -> ModuleSpec | None:
    if not is_switched_on():
        return None
    manifest = load_manifest()
    loaded.check(manifest)
    if fullname == "vllm":
        stock = stock_spec(fullname, path, target)
        if stock is None:
            return None
        whole.check_content(manifest)
        check_base(manifest, directory_of(stock))
    else:
        if _checked is None:
            _check_late(manifest)
        if fullname not in manifest.modules:
            return None
        stock = stock_spec(fullname, path, target)
    module = manifest.modules.get(fullname)
    return stock if module is None else _served_spec(manifest, module, stock)


def check_loaded() -> None:
    """Check that nobody else has loaded a patched module, unless this process runs stock vLLM.

    Raises:
        OverlayError: naming the modules.
    """
    if is_switched_on():
        loaded.check(load_manifest())


def check_base(manifest: Manifest, directory: Path) -> None:
    """Hold all stock files against the manifest, and remember where they were found.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.

    Raises:
        OverlayError: naming every file that is not the one expected.
    """
    global _checked  # noqa: PLW0603
    check_stock(manifest, directory)
    _checked = directory


def _check_late(manifest: Manifest) -> None:
    """Check a vLLM that was imported before the overlay's finder was there."""
    vllm = sys.modules.get("vllm")
    for directory in getattr(vllm, "__path__", ()):
        check_base(manifest, Path(directory))
        break


def _served_spec(manifest: Manifest, module: Module, stock: ModuleSpec | None) -> ModuleSpec:
    file = manifest.served_file(module)
    loader = _stock_loader(manifest, module, stock)
    state = files.file_state(file, module.served)
    if state != files.OK:
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} cannot serve {module.name}: {file} is {state} since it "
            f"was built.\n{manifest.repair}"
        )
    spec = ModuleSpec(
        module.name,
        make_loader(module.name, file, manifest.served_root, module.served, loader),
        origin=str(file),
    )
    spec.has_location = True
    if module.stock is not None and stock is not None:
        spec.submodule_search_locations = stock.submodule_search_locations
    elif module.package:
        # An added package has a directory of its own, which leads to its modules.
        spec.submodule_search_locations = [str(file.parent)]
    return spec


def _stock_loader(
    manifest: Manifest, module: Module, stock: ModuleSpec | None
) -> SourceFileLoader | None:
    """Return the loader of the stock module that a module replaces, None for one that is added."""
    if module.stock is None:
        if stock is not None and stock.origin != str(manifest.served_file(module)):
            raise _wrong_stock(manifest, module, stock.origin, files.UNEXPECTED)
        return None
    if stock is None or stock.origin is None:
        raise _wrong_stock(manifest, module, None, files.MISSING)
    if not isinstance(stock.loader, SourceFileLoader):
        raise not_a_source_file(module.name, stock)
    state = files.file_state(Path(stock.origin), module.stock)
    if state != files.OK:
        raise _wrong_stock(manifest, module, stock.origin, state)
    return stock.loader


def _wrong_stock(
    manifest: Manifest, module: Module, origin: str | None, state: str
) -> OverlayError:
    path = module.path if origin is None else f"{module.path} ({origin})"
    if _checked is None:
        return OverlayError(f"vllm-nemo cannot serve {module.name}: {path} is {state}")
    return mismatch(manifest, _checked, {path: state})
