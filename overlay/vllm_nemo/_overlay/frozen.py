"""Programs that a tool has frozen: what is known of them, and what they lack."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import vllm_nemo
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from pathlib import Path


def is_frozen() -> bool:
    """Tell whether this is a program of PyInstaller, cx_Freeze, Nuitka or the like."""
    return hasattr(sys, "frozen") or hasattr(vllm_nemo, "__compiled__")


def no_manifest(directory: Path) -> OverlayError:
    """Return the error for a run-time package without a manifest.

    Args:
        directory: The directory of ``vllm_nemo``.

    Returns:
        The error, to be raised. It tells a program that was frozen without data files, a source
        tree and an installation that has lost files.
    """
    missing = f"{directory} holds no manifest.json: "
    if is_frozen():
        return OverlayError(
            f"{missing}this program was frozen without the overlay's files, so there is nothing to "
            "serve.\n"
            "PyInstaller collects them when vllm-nemo is installed in the environment that it "
            "freezes, by the hook-vllm.py that comes with vllm-nemo; a hook-vllm.py of your own "
            "must not take its place. Other tools have no such hook.\n"
            f"{OVERLAY}=off runs stock vLLM, without any patch."
        )
    if (directory.parent / "series.toml").exists():
        return OverlayError(
            f"{missing}this is vllm-nemo's source tree, not a built wheel, so there is nothing to "
            "serve.\n"
            "Build the wheel in the root of the source tree and install it:\n"
            "  pip wheel --no-deps -w dist .\n"
            "  pip install --no-deps dist/vllm_nemo-*.whl"
        )
    return OverlayError(
        f"{missing}it has been lost since the overlay was installed, or the package was copied "
        "without having been built. Install the wheel again."
    )
