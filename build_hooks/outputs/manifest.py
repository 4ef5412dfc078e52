"""The manifest: what the run-time package of the wheel knows about the overlay it serves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from build_hooks.files import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from build_hooks.assembly.assemble import Outcome
    from build_hooks.outputs.content import Content
    from build_hooks.queues.model import Upstream

FORMAT = 3


def dump(content: Content, own: Mapping[str, bytes]) -> str:
    """Write the manifest as JSON, the same text for the same build.

    Args:
        content: What the wheel is made of.
        own: Every file of the wheel that takes no place in vLLM, by its name in the wheel.

    Returns:
        The text of ``manifest.json``.
    """
    overlay = content.overlay
    base = overlay.base
    data = {
        "format": FORMAT,
        "overlay": content.identity.version,
        "base": {
            "distribution": base.distribution,
            "version": str(base.version),
            "release": str(overlay.release),
            "locked": content.locked,
        },
        "queues": [
            {
                "name": queue.name,
                "revision": queue.revision,
                "digest": queue.digest,
                "locked": queue in content.verified,
                "whole": overlay.stack.is_whole(queue),
            }
            for queue in overlay.stack.queues
        ],
        "modules": {
            module.name: {
                "path": module.path,
                "package": module.is_package,
                "stock": None if module.stock is None else sha256(module.stock),
                "served": sha256(module.served),
                "patches": list(module.patches),
            }
            for module in overlay.modules
        },
        "data": {
            file.path: {
                "stock": None if file.stock is None else sha256(file.stock),
                "served": sha256(file.served),
                "patches": list(file.patches),
            }
            for file in overlay.data
        },
        "files": {name: sha256(text) for name, text in sorted(own.items())},
        "patches": [_patch(outcome) for outcome in overlay.outcomes],
    }
    return json.dumps(data, indent=2) + "\n"


def _patch(outcome: Outcome) -> dict[str, Any]:
    patch = outcome.patch
    return {
        "id": patch.id,
        "queue": patch.queue,
        "title": patch.title,
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "note": outcome.note,
        "variant": str(outcome.diff.release) if outcome.diff else None,
        "switch": patch.switch,
        "files": sorted(outcome.offsets),
        "offsets": {file: list(moved) for file, moved in sorted(outcome.offsets.items())},
        "upstream": [_upstream(reference) for reference in patch.upstream],
    }


def _upstream(reference: Upstream) -> dict[str, str]:
    entry = {"kind": reference.kind, "ref": reference.ref, "note": reference.note}
    if reference.fixed_in:
        entry["fixed-in"] = str(reference.fixed_in)
    return entry
