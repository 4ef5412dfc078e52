"""Locks: what a build of a supported release read and made, checked in, and held against.

``locks/<release>.json`` holds the sha256 of the release's wheels, of every stock file read, of
every diff applied and of every module served, with the outcome and offsets of each patch; and that
of the release's licence, which the overlay carries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from build_hooks.assemble import APPLIED, Overlay, sha256
from build_hooks.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from packaging.version import Version

FORMAT = 2
# Each field that is a table, and what its entries are.
_KINDS: dict[str, tuple[type, ...]] = {
    "wheels": (str,),
    "stock": (str, type(None)),
    "patches": (dict,),
    "served": (str,),
}
_FIELDS = {"format", "release", "licence", *_KINDS}


@dataclass(frozen=True)
class Lock:
    """The recorded build of one release."""

    release: str
    wheels: Mapping[str, str]
    licence: str | None
    content: Mapping[str, Any]

    @property
    def stock(self) -> Mapping[str, str | None]:
        """Return the sha256 of each stock file that the build reads."""
        stock: Mapping[str, str | None] = self.content["stock"]
        return stock


def path(directory: Path, release: Version) -> Path:
    """Return where the lock of a release lies."""
    return directory / "locks" / f"{release}.json"


def load(directory: Path, release: Version) -> Lock | None:
    """Read the lock of a release; None if it has none.

    Raises:
        LockError: if the file is not a lock of that release.
    """
    file = path(directory, release)
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(f"{file} cannot be read ({error}); {_again(release)}") from error
    if not isinstance(data, dict) or set(data) != _FIELDS or data["format"] != FORMAT:
        raise LockError(f"{file} is not a lock of format {FORMAT}; {_again(release)}")
    if data["release"] != str(release):
        raise LockError(f"{file} is the lock of {data['release']}; {_again(release)}")
    for field, kinds in _KINDS.items():
        entries = data[field]
        if not isinstance(entries, dict) or not all(isinstance(e, kinds) for e in entries.values()):
            raise LockError(f"{file}: {field!r} is damaged; {_again(release)}")
    if not isinstance(data["licence"], str | None):
        raise LockError(f"{file}: 'licence' is damaged; {_again(release)}")
    return Lock(data["release"], data["wheels"], data["licence"], _recorded(data))


def _again(release: object) -> str:
    return f"run: python -m build_hooks lock {release}"


def _recorded(data: Mapping[str, Any]) -> dict[str, Any]:
    return {field: data[field] for field in ("stock", "patches", "served")}


def record(overlay: Overlay) -> dict[str, Any]:
    """Describe a build in the terms of a lock: all but the wheel it came from."""
    patches = {}
    for outcome in overlay.outcomes:
        entry: dict[str, Any] = {"outcome": outcome.outcome}
        if outcome.outcome == APPLIED and outcome.variant is not None:
            entry["variant"] = str(outcome.variant.release)
            entry["sha256"] = sha256(outcome.variant.data)
            entry["offsets"] = {file: list(moved) for file, moved in outcome.offsets.items()}
        remarks = {"reason": outcome.reason, "note": outcome.note}
        entry |= {field: text for field, text in remarks.items() if text}
        patches[outcome.patch.id] = entry
    return {
        "stock": overlay.stock_hashes(),
        "patches": patches,
        "served": {module.path: sha256(module.served) for module in overlay.modules},
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


def stock_differences(lock: Lock, overlay: Overlay) -> list[str]:
    """Return the stock files in which a base differs from the locked release."""
    found = overlay.stock_hashes()
    return [
        name for name in sorted(lock.stock) if name in found and found[name] != lock.stock[name]
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
            f"If the queue was changed on purpose, {_again(lock.release)}"
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
