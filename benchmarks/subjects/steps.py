"""A start, step by step, and batches: each when it is asked for, so that it stands alone.

Arguments: ``model`` ("llama" or "moe"), ``options`` of ``LLM``, ``prompts``; and for batches,
``length`` (tokens of a prompt), ``tokens`` (to generate for each). Answers with the seconds of the
step and the CPU time of the process so far.
"""

from __future__ import annotations

import time

import answers
import engines

given = answers.ARGUMENTS


class Start:
    """What there is after each step."""

    def vllm(self) -> None:
        """Import vLLM."""
        import vllm  # noqa: F401

    def llm_class(self) -> None:
        """Import ``LLM``."""
        from vllm import LLM  # noqa: F401

    def engine(self) -> None:
        """Start the engine."""
        self._llm = engines.start(given["model"], {}, given["prompts"], given["options"])

    def batch(self) -> None:
        """Generate a batch."""
        engines.generate(self._llm, given["prompts"], given["length"], given["tokens"])


start = Start()


def take(step: str) -> dict[str, float]:
    """Take a step."""
    started = time.perf_counter()
    getattr(start, step)()
    return {"s": time.perf_counter() - started, "CPU": time.process_time()}


answers.serve(take)
