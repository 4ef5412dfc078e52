"""Measuring into pyperf's files: whole processes, what a script measured, and instructions.

A section of the benchmarks is a directory with one file a way (``WAYS``). A file is a suite of
pyperf's, so that ``python -m pyperf compare_to stock.json overlay.json`` compares two ways.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyperf
from harness.tools import ROOT

# The first is what the others are compared with.
WAYS = ("stock", "overlay", "overlay, switch on")
_TOTAL = re.compile(r"(?m)^summary: (\d+)$")


@dataclasses.dataclass(frozen=True)
class Case:
    """A command to measure.

    Attributes:
        name: What it does: the name of the benchmark.
        way: One of ``WAYS``.
        command: Its words; it runs in the project's root.
        env: All of its environment variables.
    """

    name: str
    way: str
    command: Sequence[str | Path]
    env: Mapping[str, str]


def run(case: Case) -> None:
    """Run a command once, unmeasured; its bytecode and its caches are there afterwards.

    Raises:
        RuntimeError: It failed; with the end of what it printed, which pyperf does not show.
    """
    done = subprocess.run(
        _words(case.command),
        cwd=ROOT,
        env=dict(case.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        command = " ".join(_words(case.command))
        raise RuntimeError(f"{command}: failed ({done.returncode}):\n{done.stdout[-4000:]}")


def time_processes(section: Path, cases: Sequence[Case], *, turns: int, loops: int = 1) -> None:
    """Time commands as whole processes, in turns, so that a slow minute meets all of them.

    Args:
        section: The directory of the files.
        cases: The commands.
        turns: Values of each command.
        loops: Processes that make one value, which is their mean; for those of milliseconds.
    """
    for case in cases:
        _progress(f"{case.name} ({case.way}): once, unmeasured")
        run(case)
    options = ["--quiet", "--copy-env", f"--loops={loops}"]
    options += ["--processes=1", "--values=1", "--warmups=0"]
    for turn in range(turns):
        _progress(f"turn {turn + 1} of {turns}")
        for case in cases:
            pyperf_command = [sys.executable, "-m", "pyperf", "command", *options]
            pyperf_command += ["--append", str(_file(section, case.way)), "--name", case.name]
            words = [*pyperf_command, "--", *_words(case.command)]
            env = dict(case.env)
            subprocess.run(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)


def count_instructions(section: Path, cases: Sequence[Case]) -> None:
    """Count what each command executes in user space, once, under Valgrind.

    Raises:
        RuntimeError: A command failed.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, count in zip(cases, pool.map(_instructions, cases), strict=True):
            add(section, f"{case.name}, instructions", case.way, [count], unit="integer")


def _instructions(case: Case) -> int:
    _progress(f"{case.name} ({case.way}): counting instructions, which takes minutes")
    with tempfile.TemporaryDirectory() as directory:
        # %p: a child that is forked, and not executed, writes a file too.
        out = ["--cache-sim=no", f"--cachegrind-out-file={directory}/%p"]
        shell = ["sh", "-c", f'echo $$ >{directory}/pid; exec "$@"', "sh"]
        command = [*shell, "valgrind", "--quiet", "--tool=cachegrind", *out, *case.command]
        run(dataclasses.replace(case, command=command))
        pid = Path(directory, "pid").read_text(encoding="ascii").strip()
        (total,) = _TOTAL.findall(Path(directory, pid).read_text(encoding="utf-8"))
    return int(total)


def add(
    section: Path,
    name: str,
    way: str,
    values: Sequence[float],
    *,
    unit: str = "second",
    warmups: Sequence[float] = (),
    versions: Mapping[str, str] | None = None,
) -> None:
    """Add one process's values to a file.

    Args:
        section: The directory of the files.
        name: The name of the benchmark.
        way: One of ``WAYS``.
        values: What was measured.
        unit: One of pyperf's: "second", "byte" or "integer".
        warmups: Values that do not count.
        versions: The distributions that were measured, and the version of each.
    """
    skipped = [(1, value) for value in warmups]
    metadata = {"name": name, "unit": unit, **(versions or {})}
    made = pyperf.Run(list(values), warmups=skipped, metadata=metadata)
    pyperf.add_runs(str(_file(section, way)), pyperf.Benchmark([made]))


def _file(section: Path, way: str) -> Path:
    section.mkdir(parents=True, exist_ok=True)
    return section / f"{way}.json"


def _words(command: Sequence[str | Path]) -> list[str]:
    return [str(word) for word in command]


def _progress(text: str) -> None:
    # One write, so that the lines of two threads do not mix.
    sys.stderr.write(f"  {text}\n")
