"""What a start and a batch cost in instructions, by Valgrind's count of them.

A wall clock cannot tell one per cent apart within a few dozen starts, on a machine that others use
too; a count can, since it comes out the same again. It counts what this process runs and nothing
else: no waiting, no kernel, and, as Valgrind shows processes an older CPU, none of the newest
instructions (those that hash a file in a tenth of the time, for one).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.context import Context, python
from benchmarks.measure import Aim, Figure, Section, progress
from benchmarks.startup import ENGINE, STEPS
from benchmarks.subject import Subject

_NAMES = {**STEPS, "batch": "dense model, a batch"}
_BATCHES = 4
_DENSE: dict[str, Any] = {**ENGINE, "length": 32, "tokens": 8}
_EXPERTS: dict[str, Any] = {**_DENSE, "model": "moe", "options": {"dtype": "float32"}}
_TOTALS = re.compile(r"(?m)^totals: (\d+)$")


def measure(context: Context) -> Section:
    """Count each step of a start, and batches: stock twice, switched off and with the overlay."""
    dense = {
        "stock": (context.plain, _DENSE, {}),
        "stock, again": (context.plain, _DENSE, {}),
        "overlay, switched off": (context.overlaid, _DENSE, {"NRL_VLLM_OVERLAY": "off"}),
        "overlay": (context.overlaid, _DENSE, {}),
    }
    experts: dict[str, tuple[Path, Mapping[str, Any], Mapping[str, str]]] = {
        "stock": (context.plain, _EXPERTS, {}),
        "overlay": (context.overlaid, _EXPERTS, {}),
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counting = [
            {
                way: pool.submit(_count, context, f"{name}-{number}", *ways[way])
                for number, way in enumerate(ways)
            }
            for name, ways in (("dense", dense), ("experts", experts))
        ]
        counted, counted_experts = (
            {way: future.result() for way, future in futures.items()} for futures in counting
        )
    figures = [
        _figure(
            _NAMES[step],
            {way: steps[step] for way, steps in counted.items()},
            None if step in STEPS else 0.99,
        )
        for step in _NAMES
    ]
    batch = {way: steps["batch"] for way, steps in counted_experts.items()}
    return Section(
        notes=[
            (
                f"{_version()} counts what one process executes in user space, with one thread. "
                f"The steps are those of a start of vLLM {context.release} on a CPU, in one "
                "process, eager; a batch is that of an engine which has generated one before "
                f"({_DENSE['prompts']} prompts of {_DENSE['length']} tokens, {_DENSE['tokens']} "
                f"tokens each, the mean of {_BATCHES}). The models are tiny, so that most of it "
                "is vLLM's own Python; their weights are made up. Valgrind's CPU has no "
                "instructions for SHA-256, so the check of the files counts for more here than "
                "it takes. What `stock, again` differs by is the error of the count."
            ),
        ],
        figures=[*figures, _figure("experts, a batch", batch, 0.99)],
    )


def _figure(name: str, counts: Mapping[str, float], at_least: float | None) -> Figure:
    samples = {way: [count / 1e6] for way, count in counts.items()}
    return Figure(name, "million", samples, Aim("overlay", "ratio", 1.01, at_least))


def _version() -> str:
    command = ["valgrind", "--version"]
    said = subprocess.check_output(command, text=True).strip()
    return said.replace("valgrind-", "Valgrind ")


def _count(
    context: Context, name: str, home: Path, arguments: Mapping[str, Any], extra: Mapping[str, str]
) -> dict[str, float]:
    """Take the steps in one process; return the instructions of each."""
    progress(f"  {name}: counting, which takes minutes")
    # Threads that wait for each other spin, for as long as the others take.
    env = context.engine(f"instructions-{name}", OMP_NUM_THREADS="1", **extra)
    log = context.log(f"instructions-{name}")
    # Bytecode and vLLM's caches are there at all starts but the first.
    with Subject(python(home), "steps.py", env, log, **arguments) as subject:
        subject.receive()
        for step in _NAMES:
            subject.ask(step=step)
    counts: dict[str, float] = {}
    out = context.fresh(f"instructions-{name}") / "callgrind"
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
    with Subject(python(home), "steps.py", env, log, under=valgrind, **arguments) as subject:
        subject.receive()
        process = _Counted(subject, out)
        for step in STEPS:
            counts[step] = process.take(step)
        process.take("batch")
        counts["batch"] = process.take("batch", _BATCHES)
    return counts


class _Counted:
    """A process under Valgrind, which waits to be asked for a step, and what it has executed."""

    def __init__(self, subject: Subject, out: Path) -> None:
        self._subject, self._out = subject, out
        self._dumps = 0
        self._dump()

    def take(self, step: str, times: int = 1) -> float:
        """Have a step taken; return the instructions of one time."""
        for _ in range(times):
            self._subject.ask(step=step)
        return self._dump() / times

    def _dump(self) -> int:
        """Return the instructions since the last call."""
        self._dumps += 1
        # Valgrind's own way to talk to a process that it runs. It answers within a second, unless
        # it may not attach to the process.
        command = ["vgdb", f"--pid={self._subject.pid}", "dump"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        dump = self._out.with_name(f"{self._out.name}.{self._dumps}")
        (total,) = _TOTALS.findall(dump.read_text(encoding="utf-8", errors="replace"))
        dump.unlink()
        return int(total)
