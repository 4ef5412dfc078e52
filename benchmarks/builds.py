"""What a build of overlays costs, from wheels on disk and from the index."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness import engine

from benchmarks.measure import Case, time_processes

if TYPE_CHECKING:
    from benchmarks.subject import Subject

# Our cache is emptied, so that the files are read from the index. What pip keeps stays.
_EMPTIED = ["sh", "-c", 'rm -rf "$XDG_CACHE_HOME/vllm-nemo"; exec "$@"', "sh"]


def measure(subject: Subject, section: Path) -> None:
    """Time the builds as whole processes: Python's start and the writing of the wheel included."""
    out = str(subject.scratch / "dist")
    env = engine.variables(XDG_CACHE_HOME=str(subject.scratch / "cache"))
    installed = {**env, "VIRTUAL_ENV": str(subject.stock), "NRL_VLLM_BASE": "installed"}
    build = [sys.executable, "-m", "build_hooks", "build", "--out", out]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    one, every = [*build, subject.release], [*build, "--all"]
    # Each has some 300 MB; the first build fetches them.
    wheels = ["--wheels", str(subject.scratch / "wheels")]
    cases = [
        Case(name, "overlay", command, variables)
        for name, command, variables in (
            ("one overlay, from a wheel on disk", [*one, *wheels], env),
            ("one overlay, from the index", [*_EMPTIED, *one], env),
            ("one overlay, from an installed vLLM, by pip", [*pip, "-w", out, "."], installed),
            ("all overlays, from wheels on disk", [*every, *wheels], env),
            ("all overlays, from the index", [*_EMPTIED, *every], env),
        )
    ]
    time_processes(section, cases, turns=subject.turns(10))
