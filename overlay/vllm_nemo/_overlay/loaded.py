"""The patched modules of this process: loaded from the overlay, or by somebody else.

An import hook with a finder in front of the overlay's loads what it likes, and the overlay is not
asked. It gets to see that at the next import that does reach it, when it has run a served module,
and when the guard or ``require`` asks.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from vllm_nemo._overlay.manifest import Manifest

# The spec of each module that has been seen to be the overlay's, by its name: a module that is
# reloaded gets another one.
_seen: dict[str, ModuleSpec] = {}


def check(manifest: Manifest) -> None:
    """Check the patched modules that are loaded. Each import from vLLM asks, so it has to be cheap.

    Args:
        manifest: The overlay's manifest.

    Raises:
        OverlayError: if one was loaded from elsewhere than the overlay.
    """
    strays = stray_modules(manifest)
    if strays:
        raise half_patched(strays)


def stray_modules(manifest: Manifest) -> dict[str, str]:
    """Find the patched modules that this process has loaded from elsewhere than the overlay.

    Args:
        manifest: The overlay's manifest.

    Returns:
        Where each of them was loaded from, by the module's name.
    """
    strays = {}
    modules = sys.modules
    for name, module in manifest.modules.items():
        loaded = modules.get(name)
        if loaded is None:
            continue
        spec = getattr(loaded, "__spec__", None)
        if spec is not None and _seen.get(name) is spec:
            continue
        origin = _origin(loaded)
        if origin != str(manifest.served_file(module)):
            strays[name] = origin or "no file"
        elif spec is not None:
            _seen[name] = spec
    return strays


def half_patched(strays: Mapping[str, str]) -> OverlayError:
    """Return the error for a process that has loaded stock modules in place of patched ones.

    Args:
        strays: Where each such module was loaded from, by its name.

    Returns:
        The error, to be raised.
    """
    return OverlayError(
        "vllm-nemo is installed, but this process runs vLLM modules that it does not serve:\n"
        + "".join(f"  {name} from {origin}\n" for name, origin in strays.items())
        + "They were imported before the overlay was active, or by an import hook in front of it. "
        "Import vllm_nemo before anything that imports vLLM (needed under `python -S`, or where "
        "vllm-nemo is only on PYTHONPATH), and see `vllm-nemo doctor`. "
        f"{OVERLAY}=off runs stock vLLM, without any patch."
    )


def check_finders(manifest: Manifest) -> None:
    """Check that no finder in front of the overlay's would load a patched module in its place.

    Only modules whose package is loaded are asked for: there are finders that import the package of
    whatever they are asked for.

    Args:
        manifest: The overlay's manifest.

    Raises:
        OverlayError: naming the modules, and the finders that would load them.
    """
    before = []
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) == "vllm_nemo":
            break
        before.append(finder)
    wrong = []
    for name, module in manifest.modules.items():
        package = name.rpartition(".")[0]
        if name in sys.modules or (package and package not in sys.modules):
            continue
        path = getattr(sys.modules[package], "__path__", None) if package else None
        for finder in before:
            spec = None
            # One that fails would fail at the import as well.
            with contextlib.suppress(Exception):
                spec = finder.find_spec(name, path, None)
            if spec is None:
                continue
            if spec.origin != str(manifest.served_file(module)):
                which = getattr(finder, "__name__", type(finder).__name__)
                wrong.append(f"  {name} would come from {spec.origin} (found by {which})\n")
            break
    if wrong:
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} is installed, but an import hook in front of it would "
            "load vLLM modules that it serves:\n" + "".join(wrong) + "Keep the hook off them, "
            f"or have it installed later, behind vllm-nemo's own in sys.meta_path. {OVERLAY}=off "
            "runs stock vLLM, without any patch."
        )


def _origin(module: ModuleType) -> str | None:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    return origin if isinstance(origin, str) else None
