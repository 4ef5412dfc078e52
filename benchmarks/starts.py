"""What a start costs: of a Python without vLLM, of vLLM's imports, and of an engine."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import models
from benchmarks.measure import Case, count_instructions, time_processes
from benchmarks.subject import Subject, engine_command, python, variables


def measure(subject: Subject, section: Path) -> None:
    """Time each start as a whole process, and count its instructions where there is Valgrind."""
    bare: list[Case] = []
    starts: list[Case] = []
    ways = {"stock": subject.stock, "overlay": subject.overlay}
    for way, home in ways.items():
        env = variables(home)
        bare.append(Case("a Python without vLLM", way, [python(home), "-c", "pass"], env))
        commands: dict[str, Sequence[str | Path]] = {
            "import vllm": [python(home), "-c", "import vllm"],
            "from vllm import LLM": [python(home), "-c", "from vllm import LLM"],
            "engine start": engine_command(home, models.TINY, batches=0),
        }
        starts += [Case(name, way, command, env) for name, command in commands.items()]
    time_processes(section, bare, turns=subject.turns(100), loops=10)
    time_processes(section, starts, turns=subject.turns(20))
    if not shutil.which("valgrind"):
        print("  there is no valgrind, so no instructions are counted", file=sys.stderr)
        return
    # One thread: threads that wait for each other spin for as long as the others take.
    counted = [
        dataclasses.replace(case, env={**case.env, "OMP_NUM_THREADS": "1"})
        for case in (bare if subject.quick else bare + starts)
    ]
    count_instructions(section, counted)
