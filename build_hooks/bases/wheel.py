"""A base that is a wheel file, read member by member and never unpacked."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks.bases.base import MAXIMUM_BYTES, OURS, identity_in
from build_hooks.errors import BaseError
from build_hooks.files import require_regular

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.version import Version

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises for members that are not what the directory says.
DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)


@dataclass(frozen=True)
class WheelBase:
    """A vLLM wheel."""

    path: Path
    distribution: str
    version: Version
    dist_info: str
    # Kept open: reading the directory of a wheel of 300 MB costs more than all else.
    archive: zipfile.ZipFile
    # A build holds each file against the lock, and then patches it.
    _read: dict[str, bytes | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def origin(self) -> str:
        """The wheel's file name."""
        return self.path.name

    @property
    def pristine(self) -> bool:
        """A wheel of a release holds that release, unless its version has a local part."""
        return self.version.local is None

    def read(self, path: str) -> bytes | None:
        """Read one member of the wheel, once."""
        if path not in self._read:
            self._read[path] = _member(self.archive, path, self.path)
        return self._read[path]

    def licence(self) -> bytes | None:
        """Read the licence in the wheel's metadata."""
        return self.read(f"{self.dist_info}/licenses/LICENSE") or self.read(
            f"{self.dist_info}/LICENSE"
        )


def from_wheel(path: Path) -> WheelBase:
    """Open a vLLM wheel.

    Raises:
        BaseError: if it is no wheel, damaged, or holds no vLLM.
    """
    try:
        require_regular(path)
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise BaseError(f"{path} cannot be read: {error.strerror or error}") from error
    except DAMAGE as error:
        message = f"{path} is not a whole wheel ({error}): truncated? Fetch it again."
        raise BaseError(message) from error
    names = archive.namelist()
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        # Which of them is read, or installed, is up to the tool.
        raise BaseError(f"{path} has {len(twice)} names twice, {twice[0]!r} for one; not read")
    metadata = sorted(n for n in names if n.count("/") == 1 and n.endswith(".dist-info/METADATA"))
    if len(metadata) != 1:
        raise BaseError(f"{path} is not a wheel: it has {len(metadata)} METADATA files")
    data = _member(archive, metadata[0], path) or b""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BaseError(f"{path}: its METADATA is damaged ({error})") from error
    name, version = identity_in(text, str(path))
    if name == OURS:
        raise BaseError(f"{path} is vllm-nemo itself; a base is the vLLM below it")
    if "vllm/__init__.py" not in names:
        raise BaseError(f"{path} is a wheel of something else: it contains no vllm/__init__.py")
    return WheelBase(path, name, version, metadata[0].removesuffix("/METADATA"), archive)


def unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, wheel: Path | str) -> bytes:
    """Return a member's bytes, and inflate one byte more at most than it claims to have.

    ``ZipFile.read`` would inflate all that there is before it compares.

    Raises:
        BaseError: if it claims more than any module has.
        zipfile.BadZipFile: or another of ``DAMAGE``, if it is not what it claims to be.
    """
    if member.file_size > MAXIMUM_BYTES:
        claim = f"{member.filename} claims {member.file_size} bytes"
        raise BaseError(f"{wheel}: {claim}; not read")
    if member.compress_type not in _COMPRESSIONS:
        # Others can be damaged in ways of their own, and no tool that makes wheels uses them.
        raise zipfile.BadZipFile("it is compressed in a way that wheels are not")
    with archive.open(member) as file:
        return file.read(member.file_size + 1)


def _member(archive: zipfile.ZipFile, name: str, wheel: Path) -> bytes | None:
    """Read one member of a wheel, None if there is none."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    try:
        return unpack(archive, info, wheel)
    except DAMAGE as error:
        message = f"{wheel}: {name} is damaged ({error}); fetch the wheel again"
        raise BaseError(message) from error
