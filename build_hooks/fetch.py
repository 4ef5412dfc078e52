"""Fetching a vLLM wheel from the package index, the way the user's own pip is set up to do it.

pip downloads, so that indexes, proxies, certificates and constraints are those of its
configuration. Its machine-readable progress is shown as a bar, also where pip itself would be
silent: inside a build front end, in a CI log.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from build_hooks.errors import BaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.version import Version

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_WIDTH = 30


def cache_directory() -> Path:
    """Return where fetched wheels are kept, by the XDG rules."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "vllm-nemo" / "wheels"


def find(release: Version, directory: Path) -> Path | None:
    """Find a wheel of a release among those already on disk."""
    return next(iter(sorted(directory.glob(f"vllm-{release}-*.whl"))), None)


def wheel(release: Version, known: Mapping[str, str], directory: Path | None = None) -> Path:
    """Return the wheel of a release, from the cache or from the index.

    Args:
        release: The vLLM release.
        known: File names of the release's wheels and their sha256, from its lock; a download of
            that name must have that hash. Empty for a release that is not locked.
        directory: Where wheels are kept; the cache if None.

    Raises:
        BaseError: if pip cannot get it, or got something other than what was locked.
    """
    directory = cache_directory() if directory is None else directory
    cached = find(release, directory)
    if cached is not None:
        return cached
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Beside its final place, so that a wheel appears there whole or not at all.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory) as scratch:
            _download(release, Path(scratch))
            fetched = find(release, Path(scratch))
            if fetched is None:
                raise BaseError(f"pip fetched vLLM {release}, but left no wheel of that name")
            _verify(fetched, known)
            return fetched.replace(directory / fetched.name)
    except OSError as error:
        message = (
            f"wheels cannot be kept in {directory} ({error.strerror}): set XDG_CACHE_HOME to a "
            "directory that you can write to"
        )
        raise BaseError(message) from error


def _verify(path: Path, known: Mapping[str, str]) -> None:
    if path.name not in known:
        return
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    found = digest.hexdigest()
    if found != known[path.name]:
        message = (
            f"{path.name} has sha256 {found}, but the lock says {known[path.name]}: the index "
            "serves another file under that name. Do not use it; name a wheel you trust in "
            "NRL_VLLM_BASE."
        )
        raise BaseError(message)


def _download(release: Version, directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", f"vllm=={release}", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "raw", "--dest", str(directory)]
    # pip would keep a second copy of several hundred megabytes.
    command.append("--no-cache-dir")
    bar = _Bar(f"vllm {release}", sys.stderr)
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            progress = _PROGRESS.match(line)
            if progress:
                bar.show(int(progress[1]), int(progress[2]))
            else:
                said.append(line.rstrip())
    bar.finish()
    if process.returncode != 0:
        raise BaseError(
            f"vLLM {release} could not be fetched by pip:\n  {_reason(said)}\n"
            "Check the release and the network, or name a wheel file or a directory in "
            "NRL_VLLM_BASE."
        )


def _reason(said: Sequence[str]) -> str:
    """Pick from what pip said: its errors, and the last warning, which tells of connections."""
    errors = [line for line in said if line.startswith("ERROR:")]
    if not errors:
        return "\n  ".join(said[-3:] or ["pip gave no reason"])
    warnings = [line for line in said if line.startswith("WARNING:")]
    lines = warnings[-1:] + errors
    if any("(from versions: none)" in line for line in errors):
        lines.append("No version at all was found: the index may be out of reach.")
    return "\n  ".join(lines)


class _Bar:
    """A progress bar: drawn in place on a terminal, a line every tenth elsewhere."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._live = stream.isatty()
        self._tenth = -1

    def show(self, done: int, total: int) -> None:
        if total <= 0:
            return
        filled = _WIDTH * done // total
        text = (
            f"{self._label} [{'#' * filled}{'.' * (_WIDTH - filled)}] "
            f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
        )
        tenth, self._tenth = self._tenth, 10 * done // total
        if self._live:
            print(f"\r{text}", end="", file=self._stream, flush=True)
        elif self._tenth > tenth:
            print(text, file=self._stream, flush=True)

    def finish(self) -> None:
        if self._live and self._tenth >= 0:
            print(file=self._stream)
