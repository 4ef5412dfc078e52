"""A vLLM release: its wheel on disk, its files from the index, or its whole wheel from there."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks import base as bases
from build_hooks import index
from build_hooks.errors import BaseError, PartialFetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from build_hooks.lock import Lock


def cache_directory() -> Path:
    """Return where fetched wheels are kept, by the XDG rules."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "vllm-nemo" / "wheels"


def find(release: Version, directory: Path) -> Path | None:
    """Find a wheel of a release among those already on disk."""
    return next(iter(sorted(directory.glob(f"vllm-{release}-*.whl"))), None)


def base(release: Version, locked: Lock | None) -> bases.Base:
    """Open a release: its wheel if that lies in the cache, else its files if it is locked.

    Where the index does not let a wheel be read in parts, the user is told so, and it is fetched
    whole, as is that of a release without a lock.

    Args:
        release: The vLLM release.
        locked: Its lock, if it has one.

    Raises:
        BaseError: if it cannot be had, or is something other than what was locked.
    """
    if locked is not None and find(release, cache_directory()) is None:
        # What it needs takes longer to import than a build from a wheel on disk.
        from build_hooks import partial

        kept = cache_directory().with_name("files")
        try:
            found, told = partial.base(release, locked, kept)
        except PartialFetchError as reason:
            print(f"vllm {release}: the whole wheel is fetched, for {reason}", file=sys.stderr)
        except OSError as error:
            raise _unwritable("files", kept, error) from error
        else:
            print(f"vllm {release}: {told}", file=sys.stderr)
            return found
    return bases.from_wheel(wheel(release, locked.wheels if locked else {}))


def wheel(release: Version, known: Mapping[str, str], directory: Path | None = None) -> Path:
    """Return the whole wheel of a release, from the cache or from the index.

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
            index.download(release, Path(scratch))
            fetched = find(release, Path(scratch))
            if fetched is None:
                raise BaseError(f"pip fetched vLLM {release}, but left no wheel of that name")
            _verify(fetched, known)
            return fetched.replace(directory / fetched.name)
    except OSError as error:
        raise _unwritable("wheels", directory, error) from error


def _unwritable(what: str, directory: Path, error: OSError) -> BaseError:
    return BaseError(
        f"{what} cannot be kept in {directory} ({error.strerror}): set XDG_CACHE_HOME to "
        "a directory that you can write to"
    )


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
