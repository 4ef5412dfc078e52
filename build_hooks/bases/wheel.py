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
    # What is held against a lock has to be what is patched: each member is read once.
    _read: dict[str, bytes | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def origin(self) -> str:
        """The wheel's file name."""
        return self.path.name

    @property
    def pristine(self) -> bool:
        """Whether it claims to be a release: its version has no local part."""
        return self.version.local is None

    def read(self, path: str) -> bytes | None:
        """Read one member of the wheel, as ``Base.read`` says."""
        if path not in self._read:
            self._read[path] = _member(self.archive, path, self.path)
        return self._read[path]

    def below(self, directory: str) -> list[str]:
        """List the members below a directory, as ``Base.below`` says."""
        start = f"{directory}/"
        return sorted(
            name
            for name in self.archive.namelist()
            if name.startswith(start) and not name.endswith("/")
        )

    def metadata(self) -> str | None:
        """Return the text of the wheel's METADATA."""
        data = self.read(f"{self.dist_info}/METADATA")
        return None if data is None else data.decode(errors="replace")

    def licence(self) -> bytes | None:
        """Return the licence in the wheel's metadata; None if there is none."""
        return self.read(f"{self.dist_info}/licenses/LICENSE") or self.read(
            f"{self.dist_info}/LICENSE"
        )


def from_wheel(path: Path) -> WheelBase:
    """Open a vLLM wheel.

    Args:
        path: The wheel.

    Returns:
        The base, with the wheel open.

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
        raise BaseError(
            f"{path} has two members of the name {twice[0]!r}, of which each tool takes its own; "
            "fetch the wheel again"
        )
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
    """Read a member, and inflate at most one byte more than it claims to have.

    ``ZipFile.read`` would inflate all that there is before it compares.

    Args:
        archive: The wheel.
        member: The member's entry in its directory.
        wheel: What the wheel is called in an error.

    Returns:
        The content of the member.

    Raises:
        BaseError: if it claims more bytes than any module has.
        zipfile.BadZipFile: or another of ``DAMAGE``, if it is not what it claims to be.
    """
    if member.file_size > MAXIMUM_BYTES:
        raise BaseError(
            f"{wheel}: {member.filename} claims {member.file_size} bytes; {MAXIMUM_BYTES} at most"
        )
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
