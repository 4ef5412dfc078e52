"""Free ports for tests that need neighbouring ones."""

from __future__ import annotations

import functools
import random
import socket

# Below the ports that Linux gives to whoever asks for any.
_LOWEST, _HIGHEST = 20000, 32000


@functools.cache
def free_band(name: str, size: int = 200) -> int:
    """Return the first of ``size`` ports that are free now; the same for the same name."""
    for first in random.sample(range(_LOWEST, _HIGHEST - size, size), 50):
        if all(_free(port) for port in range(first, first + size)):
            return first
    raise AssertionError(f"no {size} free ports in a row between {_LOWEST} and {_HIGHEST}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
