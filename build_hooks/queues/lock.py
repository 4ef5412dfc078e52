"""Locks: what a build of a supported release read and made, checked in beside the queue.

``locks/<release>.json`` holds the sha256 of the release's wheels, of every stock file read, of
every diff applied and of every module served, with the outcome and offsets of each patch; and that
of the release's licence, which the overlay carries. The lock of a queue that lies on others says
under ``below`` what they made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from build_hooks.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from packaging.version import Version

FORMAT = 3
# Each field that is a table, and what its entries are.
_TABLES: dict[str, Callable[[Any], bool]] = {
    "wheels": lambda entry: isinstance(entry, str),
    "stock": lambda entry: isinstance(entry, str | None),
    "patches": lambda entry: (
        isinstance(entry, dict)
        and isinstance(entry.get("outcome"), str)
        and all(isinstance(entry.get(field, ""), str) for field in ("sha256", "reason", "note"))
    ),
    "served": lambda entry: isinstance(entry, str),
}
FIELDS = {"format", "release", "licence", "below", *_TABLES}


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
    """Return where the lock of a release lies, or would lie.

    Args:
        directory: The queue.
        release: The release.
    """
    return directory / "locks" / f"{release}.json"


def load(directory: Path, release: Version) -> Lock | None:
    """Read the lock of a release.

    Args:
        directory: The queue.
        release: The release.

    Returns:
        The lock; None if the release has none.

    Raises:
        LockError: if the file is not a lock of that release.
    """
    file = path(directory, release)
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(f"{file} cannot be read ({error}); {lock_again(release)}") from error
    if not isinstance(data, dict) or set(data) != FIELDS or data["format"] != FORMAT:
        raise LockError(f"{file} is not a lock of format {FORMAT}; {lock_again(release)}")
    if data["release"] != str(release):
        raise LockError(f"{file} is the lock of {data['release']}; {lock_again(release)}")
    for field, right in _TABLES.items():
        entries = data[field]
        if not isinstance(entries, dict) or not all(map(right, entries.values())):
            raise LockError(f"{file}: {field!r} is damaged; {lock_again(release)}")
    if not isinstance(data["licence"], str | None):
        raise LockError(f"{file}: 'licence' is damaged; {lock_again(release)}")
    return Lock(data["release"], data["wheels"], data["licence"], _recorded(data))


def lock_again(release: object) -> str:
    """Return the advice to lock a release again, for the end of a message.

    Args:
        release: The release.
    """
    return f"run: python -m build_hooks lock {release}"


def _recorded(data: Mapping[str, Any]) -> dict[str, Any]:
    return {field: data[field] for field in ("below", "stock", "patches", "served")}
