"""vLLM's source files held against what their installer recorded.

An installer writes the hash of every file of a wheel into RECORD. A source file with another hash
was edited after it was installed. NeMo-RL's run-time patcher edits in place, and leaves a
``*.patch_lock`` beside each file. In an environment that uv has made, the file is often a link to
the one in uv's cache, which every other environment made from the cache has too.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay.installed import text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from importlib import metadata

LOCK = ".patch_lock"

# Those that the specification of RECORD lets an installer choose from.
_ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class Recorded:
    """The source files of vLLM that a RECORD has a hash of, compared with the hash.

    Paths are relative to the directory that holds ``vllm/``. A file that is gone is left out.

    Attributes:
        files: How many files were compared.
        differing: For each distribution, the paths of the files that differ from its RECORD.
        edited: The paths of the files that differ from every RECORD that has them.
    """

    files: int
    differing: tuple[tuple[str, ...], ...]
    edited: tuple[str, ...]


def compare(
    directory: Path,
    distributions: Sequence[metadata.Distribution],
    known: Collection[tuple[str, str]] = (),
) -> Recorded:
    """Compare vLLM's source files with what their installer recorded.

    Only ``.py`` files count, because source text is what a patcher edits, and images are slimmed by
    stripping libraries and deleting data.

    Args:
        directory: The directory of the ``vllm`` package.
        distributions: The distributions that own it.
        known: Pairs of path and sha256 in hex that are right whatever a RECORD says.

    Returns:
        What was compared, and what differs.
    """
    records = [_hashes(distribution) for distribution in distributions]
    differing: list[list[str]] = [[] for _ in records]
    edited = []
    files = 0
    for path in sorted({path for record in records for path in record}):
        try:
            content = directory.parent.joinpath(path).read_bytes()
        except (OSError, ValueError):  # the latter for a name with a NUL
            continue
        files += 1
        if (path, hashlib.sha256(content).hexdigest()) in known:
            continue
        is_recorded = False
        for record, wrong in zip(records, differing, strict=True):
            if path not in record:
                continue
            algorithm, digest = record[path]
            if hashlib.new(algorithm, content).digest() == digest:
                is_recorded = True
            else:
                wrong.append(path)
        if not is_recorded:
            edited.append(path)
    return Recorded(files, tuple(map(tuple, differing)), tuple(edited))


def _hashes(distribution: metadata.Distribution) -> Mapping[str, tuple[str, bytes]]:
    found = {}
    for row in _rows(text_of(distribution, "RECORD")):
        if len(row) < 2 or not (row[0].startswith("vllm/") and row[0].endswith(".py")):
            continue
        if ".." in row[0].split("/"):
            # Such a path leads out of vLLM.
            continue
        algorithm, _, digest = row[1].partition("=")
        if algorithm in _ALGORITHMS:
            try:
                found[row[0]] = algorithm, base64.urlsafe_b64decode(digest + "==")
            except binascii.Error:
                continue
    return found


def _rows(record: str) -> Iterator[list[str]]:
    # A line at a time, so that a line that is not CSV does not spoil the lines after it.
    for line in record.splitlines():
        try:
            yield from csv.reader([line])
        except csv.Error:
            continue


def locks(directory: Path) -> tuple[str, ...]:
    """Find the lock files that NeMo-RL's patcher has left.

    Args:
        directory: The directory of the ``vllm`` package.

    Returns:
        Their paths, relative to the directory that holds ``vllm/``.
    """
    found = []
    for parent, _, names in os.walk(directory):
        relative = Path(parent).relative_to(directory.parent)
        found += [(relative / name).as_posix() for name in names if name.endswith(LOCK)]
    return tuple(sorted(found))


def shared(directory: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Select the files that are links to a file which a cache or another environment has too.

    Args:
        directory: The directory of the ``vllm`` package.
        paths: Paths of files, relative to the directory that holds ``vllm/``.

    Returns:
        Those of the paths that are hard links with another name, or symbolic links.
    """
    return tuple(path for path in paths if _is_shared(directory.parent / path))


def _is_shared(file: Path) -> bool:
    try:
        return file.stat().st_nlink > 1 or file.is_symlink()
    except OSError:
        return False


def in_uv_cache(directory: Path, path: str) -> Path | None:
    """Find the file of uv's cache that a file of vLLM is a link to.

    Args:
        directory: The directory of the ``vllm`` package.
        path: The path of the file, relative to the directory that holds ``vllm/``.

    Returns:
        The file in the cache; None if it is not in ``UV_CACHE_DIR``, nor where uv has its cache
        without that variable.
    """
    file = directory.parent / path
    for archives in _uv_archives():
        try:
            entries = list(archives.iterdir())
        except OSError:
            continue
        for entry in entries:
            cached = entry / path
            try:
                if cached.samefile(file):
                    return cached
            except OSError:
                continue
    return None


def _uv_archives() -> Iterator[Path]:
    variables = (("UV_CACHE_DIR", ""), ("XDG_CACHE_HOME", "uv"), ("LOCALAPPDATA", "uv/cache"))
    caches = [Path(os.environ[name], below) for name, below in variables if os.environ.get(name)]
    # Path.expanduser would raise for a user without a home.
    for cache in [*caches, Path(os.path.expanduser("~/.cache/uv"))]:  # noqa: PTH111
        yield from cache.glob("archive-v*")
