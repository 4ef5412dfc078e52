"""A locked release out of the wheel on the index, without the wheel: only the files that it needs.

The lock names every file that a build of the release reads, with its sha256. These are read by
HTTP range requests, checked, and kept by their sha256 for the next build, also of a release that
shares them. All are read before the build begins, so that it has all of them or none.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
import urllib3
from remotezip import RemoteZip, RemoteZipError

from build_hooks.bases.index import pip, session
from build_hooks.bases.wheel import DAMAGE, unpack
from build_hooks.errors import BaseError, LockError, PartialFetchError
from build_hooks.files import sha256
from build_hooks.queues.lock import lock_again

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from packaging.version import Version

    from build_hooks.queues.lock import Lock

_DISTRUST = (
    "the index serves another file under that name. Do not use it; name a wheel you trust in "
    "NRL_VLLM_BASE."
)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True)
class LockedBase:
    """The files of a locked release that its build reads, and no other."""

    version: Version
    origin: str
    files: Mapping[str, bytes | None]
    text: bytes | None
    distribution: str = "vllm"
    # Every file has been held against the lock.
    pristine: bool = True

    def read(self, path: str) -> bytes | None:
        """Return a file, as ``Base.read`` says.

        Raises:
            LockError: if the lock does not name it.
        """
        if path not in self.files:
            raise LockError(
                f"this build reads {path}, which is not in the lock of vLLM {self.version}: if the "
                f"queue was changed on purpose, {lock_again(self.version)}"
            )
        return self.files[path]

    def below(self, directory: str) -> list[str]:
        """List the files of the lock, and those that were read with it, below a directory."""
        return sorted(path for path in self.files if path.startswith(f"{directory}/"))

    def metadata(self) -> str | None:
        """Return None: a build needs no metadata, so they are not read."""
        return None

    def licence(self) -> bytes | None:
        """Return the licence of the release."""
        return self.text


def read_locked(
    release: Version, locked: Lock, kept: Path, further: Collection[str] = ()
) -> tuple[LockedBase, str]:
    """Read a locked release, from the files kept of earlier builds and from the index.

    Args:
        release: The vLLM release.
        locked: Its lock.
        kept: The directory of files that earlier builds kept, each named by its sha256.
        further: Files that no lock names, which are read all the same and not kept; with "/" at the
            end, all below a directory.

    Returns:
        The release; and for the user, how many files and megabytes were read from where.

    Raises:
        BaseError: if the index has no such release, or serves other files than were locked.
        PartialFetchError: if the index does not lend itself to it; the whole wheel may be had.
        OSError: if files cannot be kept, or kept ones cannot be read.
    """
    hashes = {digest for digest in (*locked.stock.values(), locked.licence) if digest}
    contents = {digest: data for digest in hashes if (data := _kept(kept, digest)) is not None}
    told = [f"{len(hashes)} files"]
    if contents:
        told.append(f"{len(contents)} of them kept from earlier builds")
    origin = f"files kept of vLLM {release}"
    unlocked: dict[str, bytes | None] = {}
    if len(contents) < len(hashes) or further:
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=kept) as scratch:
            found = pip.locate(release, Path(scratch))
            _refuse_other(found, locked)
            origin = found.name
            fetched, unlocked, how_much = _fetch(found, locked, hashes - set(contents), further)
            for digest, data in fetched.items():
                _keep(kept, digest, data, Path(scratch))
        contents |= fetched
        told.append(how_much)
    files = {path: contents[d] if d else None for path, d in locked.stock.items()} | unlocked
    text = contents[locked.licence] if locked.licence else None
    return LockedBase(release, origin, files, text), ", ".join(told)


def _kept(directory: Path, digest: str) -> bytes | None:
    """Return a file kept of an earlier build, unless something has changed it."""
    try:
        data = (directory / digest).read_bytes()
    except FileNotFoundError:
        return None
    return data if sha256(data) == digest else None


def _keep(directory: Path, digest: str, data: bytes, scratch: Path) -> None:
    (scratch / digest).write_bytes(data)
    # Builds that run at the same time see it whole or not at all.
    (scratch / digest).replace(directory / digest)


def _refuse_other(found: pip.Location, locked: Lock) -> None:
    """Refuse a wheel that the index itself says is another one, before any of it is read."""
    expected = locked.wheels.get(found.name)
    if expected and found.sha256 and found.sha256 != expected:
        raise BaseError(
            f"the index gives {found.name} the sha256 {found.sha256}, but the lock says {expected}"
            f": {_DISTRUST}"
        )


def _fetch(
    found: pip.Location, locked: Lock, wanted: Collection[str], further: Collection[str]
) -> tuple[dict[str, bytes], dict[str, bytes | None], str]:
    """Read and check the files with these hashes, and further ones; tell how much that was."""
    url = urlsplit(found.url)
    try:
        if url.scheme == "file":
            path = Path(url2pathname(url.path))
            with zipfile.ZipFile(path) as archive:
                contents = _read(archive, found.name, locked, wanted)
                return contents, _read_further(archive, found.name, further), f"read from {path}"
        with session.session(found.url) as opened:
            ranges = _Ranges(opened)
            # remotezip asks nothing of a session but this one method.
            with RemoteZip(found.url, session=ranges) as archive:
                contents = _read(archive, found.name, locked, wanted)
                unlocked = _read_further(archive, found.name, further)
        size = f"{ranges.read / 1e6:.1f} of {ranges.size / 1e6:.1f} MB"
    except urllib3.exceptions.TimeoutError as error:
        raise _silence() from error
    except (RemoteZipError, urllib3.exceptions.HTTPError, *DAMAGE) as error:
        message = f"{found.name} could not be read in parts ({error})"
        raise PartialFetchError(message) from error
    else:
        return contents, unlocked, f"{size} read from the index"


def _silence() -> PartialFetchError:
    return PartialFetchError(f"the index was silent for {session.timeout():g} s")


def _read(
    archive: zipfile.ZipFile, name: str, locked: Lock, wanted: Collection[str]
) -> dict[str, bytes]:
    """Read the files with these hashes out of a wheel; return their contents by hash."""
    there = set(archive.namelist())
    info = f"vllm-{locked.release}.dist-info"
    # Where wheels have it by PEP 639, and where they had it before.
    places = (f"{info}/licenses/LICENSE", f"{info}/LICENSE")
    licence = next((place for place in places if place in there), places[0])
    contents: dict[str, bytes] = {}
    for path, expected in {**locked.stock, licence: locked.licence}.items():
        if expected is not None and expected not in wanted:
            continue
        data = None
        if path in there:
            data = unpack(archive, archive.getinfo(path), name)
        found = sha256(data) if data is not None else None
        if found != expected:
            raise BaseError(
                f"{name}: {path} {_hash_in_words(found)}, but the lock of vLLM {locked.release} "
                f"says that it {_hash_in_words(expected)}: {_DISTRUST}"
            )
        if data is not None and expected is not None:
            contents[expected] = data
    return contents


def _read_further(
    archive: zipfile.ZipFile, name: str, paths: Collection[str]
) -> dict[str, bytes | None]:
    """Read files, and all files below directories, that no lock names."""
    there = set(archive.namelist())
    directories = tuple(path for path in paths if path.endswith("/"))
    below = [name for name in there if name.startswith(directories) and not name.endswith("/")]
    return {
        path: unpack(archive, archive.getinfo(path), name) if path in there else None
        for path in [*(path for path in paths if not path.endswith("/")), *below]
    }


def _hash_in_words(digest: str | None) -> str:
    return f"has sha256 {digest}" if digest else "is not there"


class _Ranges:
    """Gets ranges for remotezip, and checks that they are those asked for, all of one file."""

    def __init__(self, opened: requests.Session) -> None:
        self.read = 0
        self.size = 0
        self._session = opened
        self._timeout = session.timeout()
        self._tag: str | None = None

    def get(self, url: str, *, stream: bool, headers: Mapping[str, str]) -> requests.Response:
        """Ask for the range that ``headers`` name."""
        try:
            response = self._session.get(url, stream=stream, headers=headers, timeout=self._timeout)
        except requests.Timeout as error:
            raise _silence() from error
        try:
            self._check(headers["Range"], response)
        except PartialFetchError:
            response.close()
            raise
        return response

    def _check(self, asked: str, response: requests.Response) -> None:
        if response.status_code == requests.codes.ok:
            raise PartialFetchError("the index does not serve ranges (it sends the whole wheel)")
        if response.status_code != requests.codes.partial_content:
            raise PartialFetchError(f"the index answers {response.status_code} {response.reason}")
        answer = response.headers.get("Content-Range", "")
        parsed = _CONTENT_RANGE.fullmatch(answer)
        if not parsed:
            raise PartialFetchError(f"the index does not tell the range it sends ({answer!r})")
        first, last, size = map(int, parsed.groups())
        tag = response.headers.get("ETag")
        if self.size and (size, tag) != (self.size, self._tag):
            raise PartialFetchError("the wheel on the index changed while it was read")
        self.size, self._tag = size, tag
        start, _, end = asked.removeprefix("bytes=").partition("-")
        # "-500" are the last 500 bytes, or all if there are fewer.
        wanted = (int(start), int(end)) if start else (max(size - int(end), 0), size - 1)
        if (first, last) != wanted:
            raise PartialFetchError(f"the index sends {answer} where {asked} was asked for")
        self.read += last - first + 1
