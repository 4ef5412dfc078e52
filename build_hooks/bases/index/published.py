"""Which releases of vLLM the package index has, asked by pip with the user's configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from build_hooks.errors import BaseError
from build_hooks.releases import spell

if TYPE_CHECKING:
    from packaging.version import Version

_LISTED = "Available versions:"


def releases() -> list[Version]:
    """Return the final releases that pip could install here, newest first.

    Raises:
        BaseError: if the index cannot be asked, or has none.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "vllm"]
    command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    process = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = process.stdout.splitlines()
    listed = next((line for line in lines if line.startswith(_LISTED)), "").removeprefix(_LISTED)
    words = listed.replace(",", " ").split()
    versions = [version for word in words if (version := spell(word)) is not None]
    if process.returncode != 0 or not versions:
        reason = "\n  ".join(process.stderr.strip().splitlines()[-3:] or ["pip gave no reason"])
        raise BaseError(f"pip found no release of vLLM on the package index:\n  {reason}")
    return sorted(versions, reverse=True)
