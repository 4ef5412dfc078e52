"""Checks that a queue is whole: its format, its locks, and the pages that are made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build_hooks.shared import outcomes
from build_hooks.upkeep import pages, status

if TYPE_CHECKING:
    from build_hooks.project import Project
    from build_hooks.queues.model import Queue


def faults(queue: Queue, project: Project) -> list[str]:
    """Find what is wrong with a queue whose format is right.

    Args:
        queue: The queue; reading it has checked its format.
        project: The project, which has the pages that are made from the queue.

    Returns:
        A line for each fault.

    Raises:
        BuildError: if a lock cannot be read, or the README has no place for its table.
        OSError: if a page cannot be read.
    """
    found = [
        f"{cell.patch} on {cell.base}: {cell.remark}"
        for cell in status.from_locks(queue)
        if cell.outcome in (outcomes.STALE, outcomes.UNLOCKED)
    ]
    found += [
        f"patches/{patch.id}/patch.toml: review: {entry}; look at it, then take the entry out"
        for patch in queue.patches
        for entry in patch.review
    ]
    if queue.directory != project.queue:
        return found
    found += [
        f"{project.shown(path)} is not fresh: python -m build_hooks docs"
        for path in pages.stale(pages.pages(queue, project), project)
    ]
    return found
