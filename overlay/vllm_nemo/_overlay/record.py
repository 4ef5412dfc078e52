"""vLLM's source files held against what their installer recorded.

An installer writes the hash of every file of a wheel into RECORD. A source file that is another
one now was edited after it was installed. NeMo-RL's run-time patcher edits so, in place, and
leaves a ``*.patch_lock`` beside each file; in an environment made by uv the file is often one with
that in uv's cache and in every other environment made from it.
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

# Those that PEP 376 and its successor leave to an installer.
_ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class Recorded:
    """The source files of vLLM that RECORD has a hash of.

    ``differing`` has, for each distribution in the order given, the paths that are not as it
    recorded; ``edited`` the paths that are as none of them did. Paths are relative to the
    directory that holds ``vllm/``. A file that is not there is neither.
    """

    files: int
    differing: tuple[tuple[str, ...], ...]
    edited: tuple[str, ...]


def compare(
    directory: Path,
    distributions: Sequence[metadata.Distribution],
    known: Collection[tuple[str, str]] = (),
) -> Recorded:
    """Hash the recorded source files below a directory of the ``vllm`` package.

    Only ``.py`` files count: images are slimmed by stripping libraries and deleting data, and it
    is source text that is patched. ``known`` are pairs of path and sha256 in hex that are as they
    should be whatever a RECORD says.
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
        is_somebodys = False
        for record, wrong in zip(records, differing, strict=True):
            if path not in record:
                continue
            algorithm, digest = record[path]
            if hashlib.new(algorithm, content).digest() == digest:
                is_somebodys = True
            else:
                wrong.append(path)
        if not is_somebodys:
            edited.append(path)
    return Recorded(files, tuple(map(tuple, differing)), tuple(edited))


def _hashes(distribution: metadata.Distribution) -> Mapping[str, tuple[str, bytes]]:
    found = {}
    for row in _rows(text_of(distribution, "RECORD")):
        if len(row) < 2 or not (row[0].startswith("vllm/") and row[0].endswith(".py")):
            continue
        if ".." in row[0].split("/"):
            # No file of vLLM, whoever wrote that.
            continue
        algorithm, _, digest = row[1].partition("=")
        if algorithm in _ALGORITHMS:
            try:
                found[row[0]] = algorithm, base64.urlsafe_b64decode(digest + "==")
            except binascii.Error:
                continue
    return found


def _rows(record: str) -> Iterator[list[str]]:
    # A line at a time, so that one that is no CSV takes no other with it.
    for line in record.splitlines():
        try:
            yield from csv.reader([line])
        except csv.Error:
            continue


def locks(directory: Path) -> tuple[str, ...]:
    """Return the lock files that NeMo-RL's patcher left, relative as the paths of ``compare``."""
    found = []
    for parent, _, names in os.walk(directory):
        relative = Path(parent).relative_to(directory.parent)
        found += [(relative / name).as_posix() for name in names if name.endswith(LOCK)]
    return tuple(sorted(found))


def shared(directory: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Return those of the paths that are links to a file which others have, too."""
    return tuple(path for path in paths if _is_shared(directory.parent / path))


def _is_shared(file: Path) -> bool:
    try:
        return file.stat().st_nlink > 1 or file.is_symlink()
    except OSError:
        return False


def in_uv_cache(directory: Path, path: str) -> Path | None:
    """Return the file of uv's cache that a file of vLLM is one with, if there is one.

    The cache is looked for in UV_CACHE_DIR and where uv has it otherwise; it may also be elsewhere.
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
    for cache in [*caches, Path(os.path.expanduser("~/.cache/uv"))]:  # noqa: PTH111 (may not fail)
        yield from cache.glob("archive-v*")
