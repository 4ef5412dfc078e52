"""Records a build in the lock of its release, and compares a build with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from build_hooks.errors import LockError
from build_hooks.files import sha256
from build_hooks.queues.lock import FORMAT, lock_again, path
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from build_hooks.assembly.assemble import Overlay
    from build_hooks.bases.base import Base
    from build_hooks.queues.lock import Lock
    from build_hooks.queues.model import Queue


def record(overlay: Overlay, queue: Queue | None = None) -> dict[str, Any]:
    """Describe what one queue of a build made, in the terms of its lock.

    Args:
        overlay: The queues applied to a base.
        queue: The queue; None for the last one.

    Returns:
        The fields of the lock that a build reproduces: stock files, patches, served files.
    """
    stack = overlay.stack
    queue = stack.top if queue is None else queue
    mine = {patch.id for patch in stack.patches if patch.queue == queue.name}
    patches = {}
    for outcome in overlay.outcomes:
        if outcome.patch.id not in mine:
            continue
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
    files = [file for file in overlay.stages[queue.name] if mine.intersection(file.patches)]
    place = stack.queues.index(queue)
    below = record(overlay, stack.queues[place - 1]) if place else None
    return {
        "below": None if below is None else sha256(json.dumps(below, sort_keys=True).encode()),
        "stock": {f.path: None if f.stock is None else sha256(f.stock) for f in files},
        "patches": patches,
        "served": {file.path: sha256(file.served) for file in files},
    }


def write(directory: Path, overlay: Overlay, wheels: Mapping[str, str]) -> Path:
    """Write the lock of a release for the last queue of a stack.

    The order of patches is kept, all else is sorted.

    Args:
        directory: The queue.
        overlay: The queues applied to the release.
        wheels: The file names of the release's wheels, and their sha256.

    Returns:
        The file.

    Raises:
        OSError: if it cannot be written.
    """
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
    """Find the files in which a base differs from a locked release, of those that a build reads.

    Args:
        lock: The lock of the release.
        base: The base.

    Returns:
        Their paths, sorted.
    """
    return [
        path
        for path, expected in sorted(lock.stock.items())
        if (None if (found := base.read(path)) is None else sha256(found)) != expected
    ]


def verify(lock: Lock, overlay: Overlay, queue: Queue | None = None) -> None:
    """Compare what one queue of a build made with its lock of the release.

    Of a queue that is not taken whole, only the diffs of the patches that are taken can be
    compared.

    Args:
        lock: The lock.
        overlay: The queues applied to the release.
        queue: The queue; None for the last one.

    Raises:
        LockError: naming each entry that differs.
    """
    stack = overlay.stack
    queue = stack.top if queue is None else queue
    built, locked = record(overlay, queue), dict(lock.content)
    under = stack.queues[: stack.queues.index(queue) + 1]
    if not all(map(stack.is_whole, under)):
        built, locked = _diffs(built), _diffs(locked, built["patches"])
    differences = list(_differences("", locked, built))
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        whose = "its" if queue is stack.own else f"{queue.name}'s"
        message = (
            f"The build of vLLM {lock.release} does not reproduce {whose} lock:\n{listed}\n"
            f"If the queue was changed on purpose, {lock_again(lock.release)}"
        )
        raise LockError(message)


def _diffs(recorded: Mapping[str, Any], taken: Collection[str] | None = None) -> dict[str, Any]:
    """Keep of a record what each patch says by itself: its outcome, and the hash of its diff."""
    return {
        "patches": {
            id_: {field: entry.get(field) for field in ("outcome", "sha256")}
            for id_, entry in recorded["patches"].items()
            if taken is None or id_ in taken
        }
    }


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
