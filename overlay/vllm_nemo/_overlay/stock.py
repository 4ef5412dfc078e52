"""The vLLM that is installed, held against the one that the overlay was built for.

Matching is by content, file by file, so that CUDA, CPU and ROCm builds of the same sources all
match, and a build of the same version with other sources does not. Nothing here imports vLLM.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo import import_unlocked
from vllm_nemo._overlay import files
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from vllm_nemo._overlay.installed import Installed
    from vllm_nemo._overlay.manifest import Data, Manifest, Module


def stock_spec(
    fullname: str, path: object = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Find a module the way this interpreter would without the overlay.

    Asks the finders after the overlay's own (those before it have been asked already), or all of
    them where the overlay's is not there, so that editable installs and path hooks keep working.

    Args:
        fullname: The module's name, with its packages.
        path: The ``__path__`` of its package, None for a top-level module.
        target: The module that is reloaded, if one is.

    Returns:
        The spec, None if no finder knows the module.
    """
    finders = list(sys.meta_path)
    for index, finder in enumerate(finders):
        if getattr(finder, "__module__", None) == "vllm_nemo":
            finders = finders[index + 1 :]
            break
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(fullname, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


def directory_of(spec: ModuleSpec) -> Path:
    """Find the directory of the ``vllm`` package.

    Args:
        spec: The spec of the package, as ``stock_spec`` returns it.

    Returns:
        The directory that its ``__init__.py`` is in.

    Raises:
        OverlayError: if the spec does not lead to source files on disk.
    """
    origin = spec.origin
    if not spec.has_location or origin is None or spec.submodule_search_locations is None:
        places = ", ".join(spec.submodule_search_locations or ()) or repr(origin)
        raise OverlayError(
            f"`import vllm` does not lead to an installed vLLM but to {places}, which has no "
            "vllm/__init__.py. Remove that directory from sys.path or leave the directory that "
            "holds it, then install the vLLM that this overlay is for."
        )
    if not isinstance(spec.loader, SourceFileLoader):
        raise not_a_source_file("vllm", spec)
    return Path(origin).absolute().parent


def not_a_source_file(name: str, spec: ModuleSpec) -> OverlayError:
    """Return the error for a stock module that comes from a zip, bytecode or compiled code.

    Args:
        name: The module's name, with its packages.
        spec: Its spec, which has another loader than one of source files.

    Returns:
        The error, to be raised.
    """
    return OverlayError(
        f"{name} is loaded from {spec.origin} by {type(spec.loader).__qualname__}, not from a "
        "source file, so the overlay cannot tell whether it was built for it. Install vLLM from "
        f"its wheel, unpacked and with its .py files, or set {OVERLAY}=off to run it as it is."
    )


def stock_file(directory: Path, module: Module | Data) -> Path:
    """Return the path of the stock file of a module, or of a data file.

    Args:
        directory: The directory of the ``vllm`` package.
        module: The module, or the data file.
    """
    return directory.joinpath(*module.path.split("/")[1:])


def stock_state(directory: Path | None, module: Module | Data) -> str:
    """Compare a module's stock file with the one that the overlay was built for.

    Args:
        directory: The directory of the ``vllm`` package, None if vLLM is not installed.
        module: The module.

    Returns:
        A state of ``files``: ``ABSENT`` if there is no vLLM, ``UNEXPECTED`` if it has a module
        that the overlay adds, else that of the file.
    """
    if directory is None:
        return files.ABSENT
    file = stock_file(directory, module)
    if module.stock is None:
        return files.UNEXPECTED if os.path.lexists(file) else files.OK
    return files.file_state(file, module.stock)


def check_stock(manifest: Manifest, directory: Path) -> None:
    """Hold all stock files against the manifest.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.

    Raises:
        OverlayError: naming every file that is not the one expected.
    """
    wrong = {
        module.path: state
        for module in manifest.modules.values()
        if (state := stock_state(directory, module)) != files.OK
    }
    if wrong:
        raise mismatch(manifest, directory, wrong)


def mismatch(manifest: Manifest, directory: Path, wrong: Mapping[str, str]) -> OverlayError:
    """Return the error for stock files that are not those of the base.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.
        wrong: The state of each file that is not as expected, by its path.

    Returns:
        The error, to be raised. It lists the files, and two commands of which either is a repair.
    """
    base = manifest.base
    # Imported here, because only an error needs it, and unlocked, because a finder may be asking.
    module = import_unlocked("vllm_nemo._overlay.installed")
    found: Installed = module.Installed(directory)
    hidden, shadow = found.hides, ""
    if hidden is not None:
        # Its removal is the remedy: an installation would leave it where it is.
        shadow = (
            f"The vLLM at {directory} hides the one at {hidden}, because {directory.parent} is "
            "before it on sys.path: by PYTHONPATH, the current directory, a .pth file or a user's "
            "site directory. Take it away from there, or make the two match.\n"
        )
    return OverlayError(
        f"vllm-nemo {manifest.overlay} was built for {base.distribution} {base.version}, and "
        f"{found} at {directory} does not match it:\n"
        + "".join(f"  {state}: {path}\n" for path, state in wrong.items())
        + shadow
        + "Install the vLLM that this overlay is for, or the overlay for this vLLM:\n"
        + "".join(f"  {command}\n" for command in found.repairs(manifest))
        + f"{OVERLAY}=off runs stock vLLM, without any patch."
    )
