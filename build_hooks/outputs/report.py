"""What a build tells the person who started it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from build_hooks.shared import outcomes, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from build_hooks.assembly.assemble import Outcome
    from build_hooks.outputs.content import Content
    from build_hooks.queues.model import Place


def render(content: Content) -> str:
    """Tell what was built, and what became of every patch.

    Args:
        content: The build.
    """
    base = content.overlay.base
    mark = "" if content.locked else ", unlocked"
    version = content.identity.version
    others = [
        f"{queue.name} {queue.revision} from {queue.directory}"
        for queue in content.overlay.stack.queues[1:]
    ]
    on_top = f"\non top: {', '.join(others)}" if others else ""
    title = f"vllm-nemo {version} for vLLM {base.version} ({base.origin}{mark})"
    rows = [_row(outcome) for outcome in content.overlay.outcomes]
    shown = tables.render(("patch", "outcome", "files"), rows)
    return f"{tables.fold(title + on_top)}\n\n{shown}\n"


def _row(outcome: Outcome) -> tables.Row:
    """Make the row of a patch, with a line for each file and each remark below it."""
    files = [
        f"{path}: {_runs(moved) or 'empty'}" for path, moved in sorted(outcome.offsets.items())
    ]
    if outcome.outcome == outcomes.APPLIED:
        files += [f"{path}: {_place(answer)}" for path, answer in outcome.patch.place.items()]
    remarks = [text for text in (outcome.reason, outcome.note) if text]
    changed = len(outcome.offsets)
    cells = (outcome.patch.id, outcome.outcome, str(changed) if changed else "")
    return tables.Row(cells, [*files, *remarks])


def _place(answer: Place) -> str:
    """Say where a module finds the files that it looks for."""
    if isinstance(answer, str):
        return "looks for files beside vLLM's own"
    return f"looks for files in the overlay, with {', '.join(answer) or 'none'} of vLLM"


def _runs(offsets: Sequence[int]) -> str:
    """Write the lines by which hunks have moved, equal neighbours together: ``0 x3, +20``."""
    runs = [(f"{offset:+d}" if offset else "0", len(list(run))) for offset, run in groupby(offsets)]
    return ", ".join(text if times == 1 else f"{text} x{times}" for text, times in runs)
