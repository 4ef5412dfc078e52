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


def read_regular(path: Path, maximum: int) -> bytes:
    """Return the bytes of a regular file, or of the one that a link leads to.

    A device never ends and a pipe may never begin, so neither is opened.

    Raises:
        TooLargeError: if it holds more than ``maximum`` bytes; ``strerror`` says how many.
        OSError: if it cannot be read, or is no regular file.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
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
