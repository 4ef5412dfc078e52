"""``vllm-nemo patches``: what became of each patch of the queue for this vLLM."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from vllm_nemo._overlay import api
from vllm_nemo._overlay.commands.output import HOLDS, overlay_name, print_json, print_table
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.tables import Row, fold

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from vllm_nemo._overlay.manifest import Manifest

HELP = "list the patches and what became of each for this vLLM"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser: it has none of its own."""


def run(options: argparse.Namespace) -> int:
    """List the patches, also where vLLM is not installed.

    Returns:
        The exit status.

    Raises:
        OverlayError: if there is no built overlay.
    """
    manifest = load_manifest()
    directory = _vllm_directory()
    if options.json:
        print_json(
            {
                "overlay": manifest.overlay,
                "base": dataclasses.asdict(manifest.base),
                "queues": [dataclasses.asdict(queue) for queue in manifest.queues],
                "vllm": None if directory is None else str(directory),
                "patches": [dataclasses.asdict(patch) for patch in manifest.patches],
            }
        )
        return HOLDS
    print(fold(overlay_name(manifest)))
    for queue in manifest.queues:
        print(fold(f"queue {queue}"))
    if directory is None:
        print("vLLM is not installed for this interpreter.")
    print()
    _show(manifest)
    return HOLDS


def _vllm_directory() -> Path | None:
    try:
        return api.vllm_directory()
    except OverlayError:
        return None


def _show(manifest: Manifest) -> None:
    several = len(manifest.queues) > 1
    rows = []
    for patch in manifest.patches:
        notes = [text for text in (patch.title, patch.reason, patch.note) if text]
        cells = [patch.id, patch.outcome, patch.variant or "-", patch.switch]
        rows.append(Row([patch.queue, *cells] if several else cells, notes))
    header = ["patch", "outcome", "variant", "switch"]
    print_table(["queue", *header] if several else header, rows)
