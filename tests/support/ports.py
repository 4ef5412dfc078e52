"""Free ports for tests that need neighbouring ones."""

from __future__ import annotations

import functools
import os
import random
import socket

# Below the ports that Linux chooses itself.
_LOWEST, _HIGHEST = 20000, 32000
_SIZE = 200

# pytest-xdist's workers share the machine, so each has bands of its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

_unused = list(range(_LOWEST + _WORKER * _SIZE, _HIGHEST, _SIZE * _WORKERS))
random.shuffle(_unused)


@functools.cache
def free_band(*names: str) -> int:
    """Return the first of 200 ports that are free now; others for every name, for one the same."""
    while _unused:
        first = _unused.pop()
        if all(_free(port) for port in range(first, first + _SIZE)):
            return first
    raise AssertionError(f"no {_SIZE} free ports in a row between {_LOWEST} and {_HIGHEST}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
