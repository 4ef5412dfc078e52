"""A process that is measured: its side of the conversation, and what it knows of its memory.

Requests come on standard input and answers leave on standard output, one JSON object a line.
Whatever else is printed, by vLLM or its libraries, goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARGUMENTS: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
_replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(reply: object) -> None:
    """Send one answer."""
    print(json.dumps(reply), file=_replies, flush=True)


def serve(handle: Callable[..., object]) -> None:
    """Say that all is ready, then answer every request until there are no more."""
    answer("ready")
    for line in sys.stdin:
        answer(handle(**json.loads(line)))


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def resident() -> int:
    """Return the bytes of this process that are in memory now."""
    return _status("VmRSS")


def peak() -> int:
    """Return the most bytes that were in memory since the start, or since ``forget_peak``."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Count the peak anew from here."""
    Path("/proc/self/clear_refs").write_text("5")
