"""The states of files on disk: as they were recorded, changed, missing, or not readable."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

OK = "ok"
CHANGED = "changed"
MISSING = "missing"
UNREADABLE = "unreadable"
# Nothing brings a file of that name: the overlay adds it to vLLM, or no build has made it.
UNEXPECTED = "unexpected"
# Bytecode that is not that of its source file.
STALE = "bytecode of another source"
# The manifest is not the one whose hash an installer has recorded.
UNRECORDED = "not the one in RECORD"
# There is no vLLM to look at.
ABSENT = "absent"


def file_state(file: Path, sha256: str) -> str:
    """Compare a file with the content that it must have.

    Args:
        file: The file, which need not exist.
        sha256: The digest of the content that it must have, in hex.

    Returns:
        ``OK``, ``CHANGED``, ``MISSING`` or ``UNREADABLE``.
    """
    try:
        # Every write, even one that sets the times back, gives a file a new time of change.
        found = os.stat(file)  # noqa: PTH116 - faster, and called for every file a few times
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        digest = _sha256(file, state)
    except FileNotFoundError:
        return MISSING
    except OSError:
        return UNREADABLE
    return OK if digest == sha256 else CHANGED


@functools.cache
def _sha256(file: Path, _state: tuple[int, ...]) -> str:
    """Hash a file, once for as long as it stays as it is.

    The first import of vLLM, each module that is served and vLLM's call of the guard all compare
    the same files.
    """
    return hashlib.sha256(file.read_bytes()).hexdigest()
