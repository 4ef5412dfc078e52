"""Which files a base has: what an edited tree lacks, and which directories there are."""

from __future__ import annotations

import filecmp
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from build_hooks.bases.directory import DirectoryBase
from build_hooks.bases.wheel import WheelBase

if TYPE_CHECKING:
    from build_hooks.bases.base import Base


def names(base: Base) -> frozenset[str]:
    """Return the path of each file of the package.

    Args:
        base: The base.
    """
    return frozenset(base.below("vllm"))


def same(base: Base, path: str, file: Path) -> bool:
    """Tell whether a file is what the base has; without reading a large one into memory.

    Args:
        base: The base.
        path: Its file, as ``vllm/...``.
        file: The file to compare.
    """
    if isinstance(base, WheelBase):
        member = base.archive.getinfo(path)
        return file.stat().st_size == member.file_size and _crc(file) == member.CRC
    if isinstance(base, DirectoryBase):
        return filecmp.cmp(base.root / path, file, shallow=False)
    return base.read(path) == file.read_bytes()


def _crc(file: Path) -> int:
    value = 0
    with file.open("rb") as opened:
        while chunk := opened.read(1 << 20):
            value = zlib.crc32(chunk, value)
    return value


def directories(files: frozenset[str]) -> frozenset[str]:
    """Return every directory that one of the files lies in.

    Args:
        files: The paths of files.
    """
    return frozenset(str(parent) for name in files for parent in PurePosixPath(name).parents)
