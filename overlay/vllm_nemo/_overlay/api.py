"""What a program asks the overlay: which patches it carries, and that one of them is there."""

from __future__ import annotations

import sys
from pathlib import Path

import vllm_nemo
from vllm_nemo._overlay import finder
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import Patch, Upstream, load_manifest
from vllm_nemo._overlay.stock import directory_of, stock_spec
from vllm_nemo._overlay.switches import OVERLAY

__all__ = ["Patch", "Upstream", "check_process", "list_patches", "require"]


def list_patches() -> tuple[Patch, ...]:
    """Return every patch of the queue, in the order of the queue, with what became of it.

    Raises OverlayError in a source tree, which holds no built overlay.
    """
    return load_manifest().patches


def require(patch_id: str) -> Patch:
    """Return a patch that vLLM has in this process, or raise OverlayError with the reason.

    Its outcome is "applied", or "present" where the base vLLM carried it already. A patch that is
    "not-needed" for this release raises too: the overlay cannot vouch for what vLLM does by
    itself, and a caller that supports several releases can look at ``list_patches()``. Raises as
    well when the overlay is switched off or not active, or when vLLM is missing or is not the one
    that the overlay was built for. Does not import vLLM.
    """
    manifest = load_manifest()
    found = {patch.id: patch for patch in manifest.patches}
    patch = found.get(patch_id)
    this = f"vllm-nemo {manifest.overlay} for vLLM {manifest.base.version}"
    if patch is None:
        raise OverlayError(
            f"{this} has no patch {patch_id!r}. It knows: {', '.join(found) or 'none'}."
        )
    if patch.outcome == "not-needed":
        raise OverlayError(
            f"{this} does not carry the patch {patch_id!r}: it is not needed for this release. "
            f"{patch.reason}".rstrip()
        )
    if not finder.is_switched_on():
        raise OverlayError(
            f"The patch {patch_id!r} is required, and {OVERLAY}=off runs stock vLLM."
        )
    check_process()
    return patch


def check_process() -> None:
    """Raise OverlayError unless every vLLM module of this process is, or will be, the right one."""
    manifest = load_manifest()
    strays = finder.stray_modules(manifest)
    if strays:
        raise finder.half_patched(strays)
    if not vllm_nemo.is_active():
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} is not active in this process: something has removed "
            "its finder from sys.meta_path. Call vllm_nemo.activate() before vLLM is imported."
        )
    directory = vllm_directory()
    if directory is None:
        raise OverlayError(
            f"vLLM is not installed for {sys.executable}; vllm-nemo {manifest.overlay} needs it:\n"
            f'  pip install "{manifest.base.distribution}=={manifest.base.version}"'
        )
    finder.check_base(manifest, directory)


def vllm_directory() -> Path | None:
    """Return the directory of the ``vllm`` package that this process has or would import."""
    loaded = sys.modules.get("vllm")
    # sys.path may have changed since it was imported: what was imported is what counts.
    for directory in getattr(loaded, "__path__", ()):
        return Path(directory)
    spec = stock_spec("vllm")
    return None if spec is None else directory_of(spec)
