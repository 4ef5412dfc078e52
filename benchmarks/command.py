"""The command: measure sections, keep what came of them, and write the page."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import page
from benchmarks.measure import Section, progress

if TYPE_CHECKING:
    from benchmarks.context import Context

Measure = Callable[["Context"], Section]


def measure_all(
    sections: Mapping[str, Measure], context: Context, machine: Mapping[str, str]
) -> dict[str, Any]:
    """Measure sections one after the other and return the report; one that fails is named in it."""
    started = time.monotonic()
    done: dict[str, Any] = {}
    failed = []
    for name, measure in sections.items():
        begun = time.monotonic()
        progress(f"\n{name}")
        try:
            section = measure(context)
        except Exception:  # noqa: BLE001 - whatever it is, the other sections are measured
            traceback.print_exc()
            failed.append(name)
            continue
        done[name] = {**section.machine(), "seconds": round(time.monotonic() - begun, 1)}
        progress(f"\n{page.terminal(name, section)}")
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "quick": context.quick,
        "seconds": round(time.monotonic() - started, 1),
        "machine": dict(machine),
        "failed": failed,
        "sections": done,
    }


def finish(
    report: Mapping[str, Any], wanted: Collection[str], json_file: Path, page_file: Path | None
) -> int:
    """Keep a report, and write the page if there is to be one; return the exit status.

    The page is not made of a run in which a section failed, nor of a quick one, nor of one that
    lacks a ``wanted`` section.
    """
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    progress(f"{json_file}: written")
    failed: Sequence[str] = report["failed"]
    if failed:
        progress(f"failed: {', '.join(failed)}; no page is written")
        return 1
    if page_file is not None:
        missing = sorted(set(wanted) - set(report["sections"]))
        if missing or report["quick"]:
            progress(f"no page is written: {', '.join(missing) or 'all'} not measured in full")
            return 1
        page_file.write_text(page.markdown(report), encoding="utf-8")
        progress(f"{page_file}: written")
    return 0
