"""What users do today, on the same machine and work: rewrite, fork, or clobber."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import clobbering, fork, rewriting
from benchmarks.measure import Section

if TYPE_CHECKING:
    from benchmarks.context import Context


def measure(context: Context) -> Section:
    """Measure all three against the overlay."""
    rewritten = rewriting.measure(context)
    installs, sizes = fork.measure(context)
    lives = clobbering.measure(context)
    return Section(
        notes=[
            (
                "Rewriting: every worker takes a lock, looks whether the installed files are "
                "changed already, changes them if not, and loads the code of the patched "
                "modules; with the overlay it loads the same code through the overlay's "
                "finder, which holds every stock and served file against the manifest. The "
                "parts of the standard library that vLLM imports anyway are there before. The "
                "time is from the moment when all processes are told to begin, to the answer "
                "of the last. First start: no bytecode is there, and no file has been "
                "changed."
            ),
            (
                f"Fork: the wheel of vLLM {context.release} stands for a fork's, which is as "
                "large. Installed without requirements and from a file, so that nothing is "
                "downloaded."
            ),
            (
                "Clobbering: a wheel that brings the same patched modules as files below "
                "`vllm/`, beside a wheel of vLLM with only these modules. An import gets what "
                "the interpreter's finders answer."
            ),
        ],
        figures=[*rewritten, *installs],
        tables=[sizes, lives],
    )
