"""Reading files that others have made: only regular ones, and no more than they may hold."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class TooLargeError(OSError):
    """A file that holds more than any file of its kind."""


def require_regular(path: Path) -> None:
    """Refuse to open anything but a regular file, or a link that leads to one.

    A device never ends, and a pipe may never begin.

    Raises:
        OSError: if it is something else, or cannot be looked at; ``strerror`` says which.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def is_regular(path: Path) -> bool:
    """Tell whether a path leads to a regular file.

    Raises:
        OSError: if it cannot be looked at. ``Path.is_file`` says no to that in some Pythons.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def read_regular(path: Path, maximum: int) -> bytes:
    """Return the bytes of a regular file, or of the one that a link leads to.

    Args:
        path: The file.
        maximum: How many bytes a file of its kind has at most.

    Raises:
        TooLargeError: if it holds more than ``maximum`` bytes; ``strerror`` says how many.
        OSError: if it cannot be read, or is no regular file.
    """
    require_regular(path)
    with path.open("rb") as file:
        # Its size is what the file system says; what is read is what counts.
        data = file.read(maximum + 1)
        if len(data) > maximum:
            size = max(len(data), os.fstat(file.fileno()).st_size)
            raise TooLargeError(errno.EFBIG, f"{size} bytes; {maximum} at most", str(path))
    return data


def sha256(content: bytes) -> str:
    """Return the hash by which contents are compared everywhere, in hex."""
    return hashlib.sha256(content).hexdigest()
