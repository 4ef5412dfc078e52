"""Records a build in the lock of its release, and holds a build against it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from build_hooks.errors import LockError
from build_hooks.files import sha256
from build_hooks.queues.lock import FORMAT, lock_again, path
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from build_hooks.assembly.assemble import Overlay
    from build_hooks.bases.base import Base
    from build_hooks.queues.lock import Lock


def record(overlay: Overlay) -> dict[str, Any]:
    """Describe a build in the terms of a lock: all but the wheel it came from."""
    patches = {}
    for outcome in overlay.outcomes:
        entry: dict[str, Any] = {"outcome": outcome.outcome}
        if outcome.outcome == outcomes.APPLIED and outcome.diff is not None:
            entry["sha256"] = sha256(outcome.diff.text)
            entry["files"] = {
                path: {"variant": str(variant), "offsets": list(outcome.offsets[path])}
                for path, variant in outcome.diff.variants.items()
            }
        remarks = {"reason": outcome.reason, "note": outcome.note}
        entry |= {field: text for field, text in remarks.items() if text}
        patches[outcome.patch.id] = entry
    return {
        "stock": overlay.stock_hashes(),
        "patches": patches,
        "served": overlay.served_hashes(),
    }


def write(directory: Path, overlay: Overlay, wheels: Mapping[str, str]) -> Path:
    """Write the lock of a release; the order of patches is kept, all else is sorted."""
    release = overlay.base.version
    licence = overlay.base.licence()
    content = {
        "format": FORMAT,
        "release": str(release),
        "wheels": dict(sorted(wheels.items())),
        "licence": sha256(licence) if licence is not None else None,
    }
    file = path(directory, release)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**content, **record(overlay)}, indent=2) + "\n", encoding="utf-8")
    return file


def differing_files(lock: Lock, base: Base) -> list[str]:
    """Return the files in which a base differs from the locked release, of those a build reads."""
    return [
        path
        for path, expected in sorted(lock.stock.items())
        if (None if (found := base.read(path)) is None else sha256(found)) != expected
    ]


def verify(lock: Lock, overlay: Overlay) -> None:
    """Hold a build against the lock of its release.

    Raises:
        LockError: naming each entry that differs.
    """
    differences = list(_differences("", lock.content, record(overlay)))
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        message = (
            f"The build of vLLM {lock.release} does not reproduce its lock:\n{listed}\n"
            f"If the queue was changed on purpose, {lock_again(lock.release)}"
        )
        raise LockError(message)


def _differences(where: str, locked: object, built: object) -> Iterator[str]:
    if isinstance(locked, dict) and isinstance(built, dict):
        for key in dict.fromkeys([*locked, *built]):
            name = f"{where}: {key}" if where else key
            if key not in built:
                yield f"{name}: locked, but not in this build"
            elif key not in locked:
                yield f"{name}: in this build, but not locked"
            else:
                yield from _differences(name, locked[key], built[key])
        if set(locked) == set(built) and where == "patches" and list(locked) != list(built):
            yield f"{where}: the order is {', '.join(built)}, but locked is {', '.join(locked)}"
    elif locked != built:
        yield f"{where}: {_short(built)}, but locked is {_short(locked)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
