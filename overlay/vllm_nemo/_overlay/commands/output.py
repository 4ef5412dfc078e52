"""What the commands share: exit statuses, tables and JSON on standard output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from vllm_nemo._overlay.tables import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_nemo._overlay.manifest import Manifest
    from vllm_nemo._overlay.tables import Row

# Exit statuses.
HOLDS = 0
FAILS = 1
USAGE = 2


def status_of(holds: bool) -> int:  # noqa: FBT001
    """Return the exit status of a question that was answered: ``HOLDS`` or ``FAILS``."""
    return HOLDS if holds else FAILS


def overlay_name(manifest: Manifest) -> str:
    """Name the overlay and its base in one line."""
    base = manifest.base
    locked = "" if base.locked else " (not locked)"
    return f"vllm-nemo {manifest.overlay} for {base.distribution} {base.version}{locked}"


def print_json(data: dict[str, Any]) -> None:
    """Print JSON data."""
    json.dump(data, sys.stdout, indent=2)
    print()


def print_table(header: Sequence[str], rows: Sequence[Row | Sequence[str]]) -> None:
    """Print a table that fits the terminal."""
    print(render(header, rows))
