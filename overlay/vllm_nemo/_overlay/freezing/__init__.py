"""What tools that freeze programs need to know of the overlay.

PyInstaller finds ``hook_directories`` by the entry point ``hook-dirs`` of ``pyinstaller40``.
"""

from __future__ import annotations

from pathlib import Path


def hook_directories() -> list[str]:
    """Return the directory with the hooks for PyInstaller."""
    return [str(Path(__file__).parent / "hooks")]
