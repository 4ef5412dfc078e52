"""Takes a release into a queue: into its list, its reasons, and the matrix of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tomlkit
from tomlkit.items import Array, Table

from build_hooks.errors import BuildError
from build_hooks.queues import lock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from packaging.version import Version

    from build_hooks.queues.model import Queue


def steps(queue: Queue, known: Iterable[Version], target: Version) -> tuple[Version, list[Version]]:
    """Tell which releases a bump walks through.

    Args:
        queue: The queue.
        known: The releases that the package index has.
        target: The release to end at.

    Returns:
        The newest release that is locked, from which the walk starts; and each release after it up
        to the target, oldest first. A bump that was stopped starts where it was.

    Raises:
        BuildError: if no release is locked, or the target is not newer.
    """
    locked = [r for r in queue.releases if lock.path(queue.directory, r).exists()]
    if not locked:
        raise BuildError("no release is locked: python -m build_hooks lock")
    if target <= locked[-1]:
        raise BuildError(f"{target} is not newer than {locked[-1]}, which is locked")
    after = {release for release in known if locked[-1] < release < target}
    return locked[-1], [*sorted(after), target]


def take_in(queue: Queue, release: Version, matrix: Path) -> list[str]:
    """Add a release to the series, its reasons to the patches that have ended, and to the matrix.

    Args:
        queue: The queue.
        release: The release, newer than all that the queue has.
        matrix: The matrix of the tests; another queue has none.

    Returns:
        What was written, a line each; nothing if the release is there already.

    Raises:
        BuildError: if a file has another form than this knows.
        OSError: if one cannot be read or written.
    """
    if release in queue.releases:
        return []
    series = queue.directory / "series.toml"
    document = tomlkit.parse(series.read_text(encoding="utf-8"))
    releases = document["releases"]
    if not isinstance(releases, Array):
        raise BuildError(f"{series}: releases: must be a list")
    releases.append(str(release))
    series.write_text(tomlkit.dumps(document), encoding="utf-8")
    written = [f"series.toml: {release} is supported"]
    for patch in queue.patches:
        # It ended in an older release; a reader of the new one is told why.
        if not patch.needed(release) and patch.not_needed:
            _give_reason(patch.directory / "patch.toml", release, patch.reason(release))
            written.append(f"{patch.id}: not needed, for the reason of {queue.releases[-1]}")
    if matrix.exists():
        written += _into_matrix(matrix, release)
    return written


def _give_reason(file: Path, release: Version, reason: str) -> None:
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    table = document["not-needed"]
    if not isinstance(table, Table):
        raise BuildError(f"{file}: not-needed: must be a table of its own")
    table[str(release)] = reason
    file.write_text(tomlkit.dumps(document), encoding="utf-8")


def _into_matrix(matrix: Path, release: Version) -> list[str]:
    """Let a release have the pins of the one before it."""
    document = tomlkit.parse(matrix.read_text(encoding="utf-8"))
    known = document["release"].unwrap()
    if str(release) in known:
        return []
    last = list(known)[-1]
    pins = {name: tomlkit.item(value).as_string() for name, value in known[last].items()}
    lines = "".join(f"{name} = {value}\n" for name, value in pins.items())
    text = f'{matrix.read_text(encoding="utf-8").rstrip()}\n\n[release."{release}"]\n{lines}'
    matrix.write_text(text, encoding="utf-8")
    return [f"{matrix.name}: {release} has the pins of {last}; look at its torch"]
