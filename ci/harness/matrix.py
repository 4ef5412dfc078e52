"""Proves every patch on every supported vLLM: on stock the defect, on the built wheel none.

Makes an environment a release, installs the built wheel, and runs the tests of every patch and of
the engine there. Ends with a table of passed tests (on stock / on the overlay), which it also
writes to build/matrix as JSON and Markdown. The exit status is 0 only if no cell is a hole.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from zipfile import ZipFile

from harness import cells, environments, junit, tables, tools
from harness.environments import MATRIX, RELEASES
from harness.tools import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OUT = BUILD / "matrix"
TESTS = ROOT / "tests"
ENGINE = "engine"
QUEUE = {path.parent.name for path in (ROOT / "overlay" / "patches").glob("*/patch.toml")}
AREAS = {*QUEUE, ENGINE}


def main() -> int:
    """Run what the command line asks for (``ci/matrix``); return the exit status."""
    options = _options()
    releases: list[str] = options.release or RELEASES
    chosen = {
        name: areas
        for name, areas in units().items()
        if not options.only or set(areas) & set(options.only)
    }
    start = time.monotonic()
    _run_all(releases, chosen, jobs=options.jobs, resume=options.resume)
    found = [cell for release in releases for cell in collect(release, chosen)]
    minutes = round((time.monotonic() - start) / 60, 1)
    missing = cells.holes(found)
    report = {"minutes": minutes, "holes": missing, "cells": cells.machine(found)}
    (OUT / "matrix.json").write_text(json.dumps(report, indent=1) + "\n")
    (OUT / "matrix.md").write_text(cells.markdown(found))
    print(json.dumps(report) if options.json else tables.render(*cells.table(found)))
    for line in missing:
        print(line, file=sys.stderr)
    print(f"{len(found)} cells in {minutes} minutes; {len(missing)} holes", file=sys.stderr)
    print(f"{OUT / 'matrix.json'}\n{OUT / 'matrix.md'}", file=sys.stderr)
    return 1 if missing else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ci/matrix", description=__doc__)
    parser.add_argument("release", nargs="*", help="vLLM releases (default: all supported)")
    parser.add_argument(
        "--only", action="append", metavar="PATCH", help="only this patch, or 'engine'; repeatable"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what passed before with this wheel and tests"
    )
    parser.add_argument("--jobs", type=int, default=2, help="test processes at a time (default: 2)")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    options = parser.parse_args()
    environments.check(parser, options.release)
    unknown = [area for area in options.only or () if area not in AREAS]
    if unknown:
        parser.error(f"no such patch: {', '.join(unknown)}; there are {', '.join(sorted(AREAS))}")
    return options


def directory(area: str) -> Path:
    """Return where the tests of a patch, or of the engine, lie."""
    return TESTS / "patches" / area.replace("-", "_") if area in QUEUE else TESTS / area


def units() -> dict[str, list[str]]:
    """Group the areas by what runs in one process, each scenario once."""
    together: dict[str, list[str]] = dict(MATRIX["together"])
    grouped = {area for group in together.values() for area in group}
    return {**together, **{area: [area] for area in sorted(AREAS - grouped)}}


def fingerprint(wheel: Path, areas: Sequence[str]) -> str:
    """Hash what a unit's result depends on: the code in the wheel, its tests, what they share."""
    digest = hashlib.sha256()
    with ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if ".dist-info/" not in name:
                digest.update(name.encode() + archive.read(name))
    own = [directory(area) for area in areas]
    shared = [ROOT / "ci" / "harness" / "engine.py", TESTS / "conftest.py"]
    shared += (TESTS / "support").rglob("*.py")
    for folder in (TESTS / "patches").iterdir():
        if folder in own or not any(folder.glob("test_*.py")):
            shared += folder.rglob("*.py")
    for path in sorted({*shared, *(file for folder in own for file in folder.rglob("*.py"))}):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def _run_all(
    releases: Sequence[str], chosen: Mapping[str, list[str]], *, jobs: int, resume: bool
) -> None:
    """Run the units of all releases, ``jobs`` at a time."""
    python = tools.interpreter("lint", "test")
    progress = _Progress(len(releases) * len(chosen))
    with ThreadPoolExecutor(jobs) as pool:
        running: list[Future[float]] = []
        try:
            for release in releases:
                # The next environment is made while the tests of the one before run.
                environments.environment(release, python)
                wheel = environments.overlay(release, python)
                for name, areas in chosen.items():
                    key = fingerprint(wheel, areas)
                    if resume and _passed_before(release, name, key):
                        progress.say(release, name, "passed before")
                        continue
                    unit = pool.submit(_run, python, release, name, areas, key)
                    unit.add_done_callback(functools.partial(progress.ended, release, name))
                    running.append(unit)
            for unit in running:
                unit.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _run(python: Path, release: str, name: str, areas: Sequence[str], key: str) -> float:
    """Run a unit's tests in a process of their own; return the seconds it took."""
    xml, log, stamp = (_file(release, name, end) for end in ("xml", "log", "json"))
    xml.parent.mkdir(parents=True, exist_ok=True)
    for old in (xml, stamp):
        old.unlink(missing_ok=True)
    command: list[str | Path] = [python, "-m", "pytest", f"--envs={environments.ENVIRONMENTS}"]
    command += [f"--vllm={release}", "-p", "no:cacheprovider", f"--junitxml={xml}"]
    command += map(directory, areas)
    start = time.monotonic()
    with log.open("w") as output:
        subprocess.run(command, cwd=ROOT, check=False, stdout=output, stderr=subprocess.STDOUT)
    seconds = round(time.monotonic() - start, 1)
    stamp.write_text(json.dumps({"key": key, "seconds": seconds}))
    return seconds


def _passed_before(release: str, name: str, key: str) -> bool:
    """Whether a unit has run before, with the same wheel and tests, and nothing failed."""
    try:
        stamp = json.loads(_file(release, name, "json").read_text())
        tests = junit.read(_file(release, name, "xml"))
    except (OSError, ValueError, junit.RecordError):
        return False
    return bool(stamp["key"] == key and not junit.count(tests)[junit.FAILED])


def collect(release: str, chosen: Mapping[str, list[str]]) -> list[cells.Cell]:
    """Judge what all units of a release left behind."""
    lock = json.loads((ROOT / "overlay" / "locks" / f"{release}.json").read_text())
    judged = []
    for name, areas in chosen.items():
        try:
            tests = junit.read(_file(release, name, "xml"))
        except junit.RecordError:
            tests = []
        for area in areas:
            outcome = lock["patches"].get(area, {}).get("outcome", "applied")
            needed = cells.HALVES if outcome == "applied" else ()
            if environments.level(release) == "sources" and cells.all_skipped(area, tests):
                # No engine runs there; what else there is of a patch is looked at.
                needed = ()
            judged.append(cells.judge(release, area, tests, needed))
    return judged


def _file(release: str, name: str, suffix: str) -> Path:
    """Return a file that a unit leaves behind."""
    return OUT / release / f"{name}.{suffix}"


class _Progress:
    """Tells of each unit as it ends."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def say(self, release: str, name: str, what: str) -> None:
        """Count a unit and print a line."""
        self._done += 1
        line = f"[{self._done}/{self._total}] vLLM {release} {name}: {what}"
        print(line, file=sys.stderr, flush=True)

    def ended(self, release: str, name: str, unit: Future[float]) -> None:
        """Say in a few words how a unit that has run came out."""
        log = _file(release, name, "log")
        if unit.cancelled():
            return
        try:
            counts = junit.count(junit.read(_file(release, name, "xml")))
        except junit.RecordError:
            self.say(release, name, f"no result; see {log}")
            return
        told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
        where = f"; see {log}" if counts[junit.FAILED] else ""
        self.say(release, name, f"{told or 'no tests'} in {unit.result():.0f} s{where}")
