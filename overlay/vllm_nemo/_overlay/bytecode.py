"""Whether Python would run a source file from bytecode that is not that of its content.

``content`` tells how that can come, and keeps it from the modules of this package. Those that come
before ``content``, and the packages of other queues, are loaded by Python as any other.
"""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Reader(SourceFileLoader):
    """Python's own loader, with its own mind about what bytecode to take; it writes none."""

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Write nothing."""


def stale(file: str) -> str | None:
    """Find bytecode that this interpreter would run for a source file, and that is of another one.

    Args:
        file: The path of the source file.

    Returns:
        The path of the bytecode; None if there is none, or none that this interpreter would take,
        or if it is what the source file compiles to.
    """
    cached = cache_from_source(file)
    if not os.path.exists(cached):  # noqa: PTH110 (called for every file in every process)
        return None
    loader = _Reader("vllm_nemo", file)
    try:
        source = loader.get_data(file)
    except OSError:
        return None
    try:
        code = loader.get_code("vllm_nemo")
        same = code == loader.source_to_code(source, file)
    except (EOFError, ImportError, ValueError, TypeError):
        # Cut short, or no bytecode at all: Python would fail at it.
        same = False
    except (SyntaxError, UnicodeError):
        # The source is not as it was built, which whoever asks has found.
        return None
    return None if same else cached
