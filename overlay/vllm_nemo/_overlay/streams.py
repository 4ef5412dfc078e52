"""Standard output that cannot be written: a full disk, a closed pipe, no permission, none at all.

The one place for the wheel's command and the build's. It imports nothing of this package, because
the build loads it by its path (``build_hooks.shared``).
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FAILS = 1


def run(command: Callable[[], int], prefix: str) -> int:
    """Run a command, and see to it that what it prints is written.

    Args:
        command: Prints to standard output, and returns an exit status.
        prefix: What error messages begin with.

    Returns:
        The exit status of the command; ``FAILS`` if standard output does not take what it prints,
        or the system refuses anything else, which one line on standard error tells.

    Raises:
        SystemExit: if the command does, and all that it has printed is written.
    """
    stream = sys.stdout
    if stream is None:
        return _fail(f"{prefix}: standard output is closed")
    try:
        raw = _Output(stream.fileno(), "w", closefd=False)
        stream.flush()
    except (AttributeError, ValueError):
        # What replaces it in a test or a notebook is no file.
        return _run(command, prefix)
    except OSError as error:
        return _fail(_unwritten(prefix, error))
    printed = sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )
    ended = None
    try:
        status = _run(command, prefix, raw)
    except SystemExit as end:
        # The help ends in it.
        ended, status = end, FAILS
    finally:
        sys.stdout = stream
        with contextlib.suppress(OSError):
            printed.flush()
    if raw.error is not None:
        return _fail(_unwritten(prefix, raw.error))
    if ended is not None:
        raise ended
    return status


class _Output(io.FileIO):
    """A descriptor that remembers that it could not be written, and takes nothing more then."""

    error: OSError | None = None

    def write(self, data: object) -> int:
        if self.error is not None:
            return len(memoryview(data))  # type: ignore[arg-type]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.error = error
            raise


def _run(command: Callable[[], int], prefix: str, raw: _Output | None = None) -> int:
    try:
        return command()
    except OSError as error:
        if raw is not None and raw.error is not None:
            return FAILS
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{prefix}: {where}{reason}")


def _unwritten(prefix: str, error: OSError) -> str:
    return f"{prefix}: standard output cannot be written: {error.strerror or error}"


def _fail(line: str) -> int:
    # Standard error may be as full.
    with contextlib.suppress(OSError, AttributeError):
        print(line, file=sys.stderr, flush=True)
    return FAILS
