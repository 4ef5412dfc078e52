"""Standard outputs that take nothing: a full disk, a closed pipe, no permission, none at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _sealed() -> int:
    """Make a file that nobody is permitted to write to, open for writing."""
    file = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    return file


def _read_only() -> int:
    return os.open(os.devnull, os.O_RDONLY)


OUTPUTS = {
    "full": (_full, "No space left on device"),
    "closed pipe": (_closed_pipe, "Broken pipe"),
    "no permission": (_sealed, "Operation not permitted"),
    "read-only": (_read_only, "Bad file descriptor"),
    "none": (None, "is closed"),
}
every = pytest.mark.parametrize("output", OUTPUTS)


@contextlib.contextmanager
def _opened(output: str) -> Iterator[int]:
    make = OUTPUTS[output][0]
    descriptor = os.open(os.devnull, os.O_WRONLY) if make is None else make()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def run(
    command: Sequence[str | Path],
    output: str,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> tuple[int, list[str]]:
    """Run a command with one of the outputs; return its status and its lines of standard error."""
    words = list(map(str, command))
    if OUTPUTS[output][0] is None:
        words = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    with _opened(output) as descriptor:
        process = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=cwd,
            timeout=120,
            check=False,
        )
    return process.returncode, process.stderr.splitlines()
