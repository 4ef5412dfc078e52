"""A vLLM release: its wheel on disk, its files from the index, or its whole wheel from there."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.bases.index import pip
from build_hooks.bases.wheel import from_wheel
from build_hooks.errors import BaseError, PartialFetchError
from build_hooks.files import require_regular
from build_hooks.queues import lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.version import Version

    from build_hooks.bases.base import Base
    from build_hooks.queues.stack import Stack

_ELSEWHERE = "set XDG_CACHE_HOME to a directory that you can write to"
# What helps where the system refuses a file; where nothing is said, its own words are enough.
_ADVICE = {
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EROFS: _ELSEWHERE,
    errno.ENOSPC: "free some space there",
}


def cache_directory() -> Path:
    """Return where fetched wheels are kept, by the XDG rules.

    Raises:
        BaseError: if the user has no home directory, and ``XDG_CACHE_HOME`` names no other.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(root) if root else Path.home() / ".cache"
    except RuntimeError as error:
        raise BaseError(f"there is no home directory for the cache; {_ELSEWHERE}") from error
    return home / "vllm-nemo" / "wheels"


def open_release(release: Version, queues: Stack) -> Base:
    """Open a release: its wheel if that lies in the cache, else its files if it is locked.

    Where the index does not let a wheel be read in parts, the user is told so, and it is fetched
    whole, as is that of a release without a lock.

    Args:
        release: The vLLM release.
        queues: The queues, which hold the locks of the release.

    Returns:
        The base.

    Raises:
        BaseError: if it cannot be had, or is something other than what was locked.
    """
    locked = lock.load(queues.own.directory, release)
    base = None if locked is None else _from_parts(release, locked, queues)
    if base is None:
        base = from_wheel(fetch_wheel(release, locked.wheels if locked else {}))
    if base.version != release:
        raise BaseError(
            f"{base.origin} contains vLLM {base.version}, not {release}: delete it, and run this "
            "again"
        )
    return base


def fetch_wheel(release: Version, known: Mapping[str, str], directory: Path | None = None) -> Path:
    """Return the whole wheel of a release, from the cache or from the index.

    Args:
        release: The vLLM release.
        known: File names of the release's wheels and their sha256, from its lock; a wheel of that
            name, kept or fetched, must have that hash. Empty for a release that is not locked.
        directory: Where wheels are kept; the cache if None.

    Returns:
        The path of the wheel.

    Raises:
        BaseError: if pip cannot get it, or it is something other than what was locked.
    """
    directory = cache_directory() if directory is None else directory
    with _refusals_explained(release, directory):
        kept = _find(release, directory)
        if kept is not None:
            _verify(kept, known, f"delete {kept} and run this again")
            return kept
        directory.mkdir(parents=True, exist_ok=True)
        # Beside its final place, so that a wheel appears there whole or not at all.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory) as scratch:
            pip.download(release, Path(scratch))
            fetched = _find(release, Path(scratch))
            if fetched is None:
                raise BaseError(f"pip fetched vLLM {release}, but left no wheel of that name")
            _verify(
                fetched,
                known,
                "the index serves another file under that name. Do not use it; name a wheel that "
                "you trust in NRL_VLLM_BASE",
            )
            return fetched.replace(directory / fetched.name)


def _from_parts(release: Version, locked: lock.Lock, queues: Stack) -> Base | None:
    """Open a locked release without its wheel; None if the wheel is there, or has to be fetched."""
    directory = cache_directory()
    with _refusals_explained(release, directory):
        if _find(release, directory) is not None:
            return None
        # What it needs takes longer to import than a build from a wheel on disk.
        from build_hooks.bases.index import parts

        try:
            base, told = parts.read_locked(
                release,
                _with_others(locked, release, queues),
                directory.with_name("files"),
                _unlocked_files(locked, release, queues),
            )
        except PartialFetchError as reason:
            print(f"vllm {release}: the whole wheel is fetched, for {reason}", file=sys.stderr)
            return None
    print(f"vllm {release}: {told}", file=sys.stderr)
    return base


def _with_others(locked: lock.Lock, release: Version, queues: Stack) -> lock.Lock:
    """Add the stock files that the locks of other queues know."""
    stock = dict(locked.stock)
    for queue in queues.queues[1:]:
        theirs = lock.load(queue.directory, release)
        stock = {**(theirs.stock if theirs else {}), **stock}
    return dataclasses.replace(locked, content={**locked.content, "stock": stock})


def _unlocked_files(locked: lock.Lock, release: Version, queues: Stack) -> set[str]:
    """Return the files that only queues without a lock read, so that nobody knows their hash."""
    stock = _with_others(locked, release, queues).stock
    read: set[str] = set()
    for patch in queues.patches:
        if patch.needed(release) and (diff := patch.diff(release)) is not None:
            read |= {file.path for file in diff.files}
            for path, answer in patch.place.items():
                read.add(path)
                names = answer if isinstance(answer, tuple) else ()
                placed = [f"{path.rpartition('/')[0]}/{name}" for name in names]
                # A file, or a directory.
                read |= {*placed, *(f"{name}/" for name in placed)}
    return {path for path in read if path not in stock and not _any_below(path, stock)}


def _any_below(path: str, stock: Iterable[str]) -> bool:
    """Tell whether a lock knows files below a directory, and so all that a build reads."""
    return path.endswith("/") and any(name.startswith(path) for name in stock)


def _find(release: Version, directory: Path) -> Path | None:
    """Find a wheel of a release among those in a directory."""
    return next(iter(sorted(directory.glob(f"vllm-{release}-*.whl"))), None)


@contextlib.contextmanager
def _refusals_explained(release: Version, directory: Path) -> Iterator[None]:
    """Say what the system refused, and where; give a remedy only where there is one."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        raise BaseError(
            f"vLLM {release} cannot be read from the cache, or kept in it: "
            f"{error.filename or directory}: {error.strerror or error}"
            + (f"; {advice}" if advice else "")
        ) from error


def _verify(path: Path, known: Mapping[str, str], advice: str) -> None:
    if path.name not in known:
        return
    require_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != known[path.name]:
        raise BaseError(
            f"{path.name} has sha256 {digest.hexdigest()}, but the lock says {known[path.name]}: "
            f"{advice}."
        )
