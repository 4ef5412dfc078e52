"""What a program asks the overlay: which patches it carries, and that one of them is there."""

from __future__ import annotations

import sys
from pathlib import Path

import vllm_nemo
from vllm_nemo._overlay import finder, loaded, outcomes, whole
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import Patch, Upstream, load_manifest
from vllm_nemo._overlay.stock import directory_of, stock_spec
from vllm_nemo._overlay.switches import OVERLAY

__all__ = ["Patch", "Upstream", "check_process", "list_patches", "require", "vllm_directory"]


def list_patches() -> tuple[Patch, ...]:
    """List the patches of the queue and what became of each for this vLLM.

    Returns:
        Every patch, in the order of the queue.

    Raises:
        OverlayError: if there is no built overlay, as in a source tree, or it is damaged.
    """
    return load_manifest().patches


def require(patch_id: str) -> Patch:
    """Return a patch whose effect vLLM has in this process. Does not import vLLM.

    A patch that is "not-needed" for this release raises too, because the overlay cannot vouch for
    what vLLM does by itself. A caller that supports several releases can look at
    ``list_patches()``.

    Args:
        patch_id: The patch's name in the queue, for instance ``fp32-lm-head``.

    Returns:
        The patch. Its outcome is "applied"; "present" where the base vLLM carries it already; or
        "provided" where whoever built the overlay says that the base has it in a form of its own.

    Raises:
        OverlayError: if the overlay does not carry the patch, is switched off or not active, or if
            vLLM is missing or is not the one that the overlay was built for. The message says
            which.
    """
    manifest = load_manifest()
    found = {patch.id: patch for patch in manifest.patches}
    patch = found.get(patch_id)
    this = f"vllm-nemo {manifest.overlay} for vLLM {manifest.base.version}"
    if patch is None:
        raise OverlayError(
            f"{this} has no patch {patch_id!r}. It knows: {', '.join(found) or 'none'}."
        )
    if patch.outcome == outcomes.NOT_NEEDED:
        raise OverlayError(
            f"{this} does not carry the patch {patch_id!r}: it is not needed for this release. "
            f"{patch.reason}".rstrip()
        )
    if not finder.is_switched_on():
        raise OverlayError(
            f"The patch {patch_id!r} is required, and {OVERLAY}=off runs stock vLLM. "
            f"Unset {OVERLAY}."
        )
    check_process()
    return patch


def check_process() -> None:
    """Check that every vLLM module of this process is, or will be, the right one.

    Raises:
        OverlayError: if a patched module was or would be loaded from elsewhere, the overlay is not
            active in this process, a file of it is not as it was built, vLLM is not installed, or
            it is not the one that the overlay was built for.
    """
    manifest = load_manifest()
    loaded.check(manifest)
    if not vllm_nemo.is_active():
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} is not active in this process: something has removed "
            "its finder from sys.meta_path. Call vllm_nemo.activate() before vLLM is imported."
        )
    whole.check(manifest)
    directory = vllm_directory()
    if directory is None:
        raise OverlayError(
            f"vLLM is not installed for {sys.executable}; vllm-nemo {manifest.overlay} needs it:\n"
            f'  pip install "{manifest.base.distribution}=={manifest.base.version}"'
        )
    finder.check_base(manifest, directory)
    loaded.check_finders(manifest)


def vllm_directory() -> Path | None:
    """Find the directory of the ``vllm`` package that this process has, or would import.

    Returns:
        The directory; None if vLLM is not installed.

    Raises:
        OverlayError: if ``import vllm`` would not lead to source files on disk.
    """
    package = sys.modules.get("vllm")
    # sys.path may have changed since it was imported: what was imported is what counts.
    for directory in getattr(package, "__path__", ()):
        return Path(directory)
    spec = stock_spec("vllm")
    return None if spec is None else directory_of(spec)
