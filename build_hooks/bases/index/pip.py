"""The package index, asked the way the user's own pip is set up: where a wheel lies, and the wheel.

pip does the asking, so that indexes, proxies, certificates and constraints are those of its
configuration. Its machine-readable progress is shown as a bar, also where pip itself would be
silent: inside a build front end, in a CI log.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO
from urllib.parse import unquote, urlsplit

from build_hooks.errors import BaseError, PartialFetchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from packaging.version import Version

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_REFUSAL = re.compile(r"\[Errno (\d+)\]")
# Those that are about files, which an index cannot cause.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# A download of more bytes is that of a wheel: metadata that lie beside it are a few kilobytes.
_METADATA_BYTES = 4 << 20
_WIDTH = 30


@dataclass(frozen=True)
class Location:
    """Where a wheel lies: its address, free of credentials, and the sha256 the index gives it."""

    url: str
    sha256: str | None

    @property
    def name(self) -> str:
        """Return the wheel's file name."""
        return unquote(urlsplit(self.url).path).rsplit("/", 1)[-1]


def download(release: Version, directory: Path) -> None:
    """Let pip download the wheel of a release into a directory.

    Args:
        release: The vLLM release.
        directory: An empty directory, also for pip's temporary files.

    Raises:
        BaseError: with what pip said, if it could not.
        OSError: if the system refuses to write there.
    """
    bar = _Bar(f"vllm {release}", sys.stderr)
    arguments = ["download", "--dest", str(directory)]
    status, said = _pip(arguments, release, directory, bar.show)
    bar.finish()
    if status != 0:
        raise BaseError(_failure(release, said))


def locate(release: Version, scratch: Path) -> Location:
    """Ask pip where the wheel of a release lies, without the wheel itself.

    pip reads the wheel's metadata for that: by themselves where the index offers them (PEP 658),
    else out of the wheel by ranges, else by downloading the wheel, which is broken off.

    Args:
        release: The vLLM release.
        scratch: An empty directory for pip's report and temporary files.

    Raises:
        BaseError: with what pip said, if the index has no such release, or cannot be reached.
        PartialFetchError: if pip will not tell without downloading the wheel, or not at all.
        OSError: if the system refuses to write there.
    """

    def broken_off(_: int, total: int) -> None:
        if total > _METADATA_BYTES:
            raise PartialFetchError(
                "the index has no metadata beside the wheel (PEP 658), and pip gets none by ranges"
            )

    report = scratch / "report.json"
    arguments = ["install", "--dry-run", "--ignore-installed", "--report", str(report)]
    status, said = _pip([*arguments, "--use-feature=fast-deps"], release, scratch, broken_off)
    # pip warns of that feature; what it is used for here is checked by what comes after.
    said = [line for line in said if "fast-deps" not in line]
    if status != 0:
        if any("No matching distribution found" in line for line in said):
            raise BaseError(_failure(release, said))
        raise PartialFetchError(f"pip does not tell where the wheel lies: {_reason(said)}")
    try:
        (entry,) = json.loads(report.read_bytes())["install"]
        found = entry["download_info"]
        hashes = found.get("archive_info", {}).get("hashes", {})
        return Location(str(found["url"]), hashes.get("sha256"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"pip's report does not tell where the wheel lies ({error!r})"
        raise PartialFetchError(message) from error


def _pip(
    arguments: Sequence[str],
    release: Version,
    scratch: Path,
    progress: Callable[[int, int], None],
) -> tuple[int, list[str]]:
    """Run pip on one vLLM wheel; return its status and what it said, but for its progress."""
    command = [sys.executable, "-m", "pip", *arguments, f"vllm=={release}", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    # What pip caches would be a second copy of several hundred megabytes.
    command += ["--progress-bar", "raw", "--no-cache-dir"]
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A pip that is broken off leaves what it had: there, it is removed with the rest.
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        try:
            for line in process.stdout or ():
                found = _PROGRESS.match(line)
                if found:
                    progress(int(found[1]), int(found[2]))
                else:
                    said.append(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        _raise_refusal(said, scratch)
    return process.returncode, said


def _raise_refusal(said: Sequence[str], scratch: Path) -> None:
    """Raise what the system refused pip: no other index and no other release would help."""
    for line in said:
        found = _REFUSAL.search(line)
        if found and int(found[1]) in _REFUSALS:
            raise OSError(int(found[1]), os.strerror(int(found[1])), str(scratch))


def _failure(release: Version, said: Sequence[str]) -> str:
    return (
        f"vLLM {release} could not be fetched by pip:\n  {_reason(said)}\n"
        "Check the release and the network, or name a wheel file or a directory in NRL_VLLM_BASE."
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
