"""An engine that generates the same batch whenever it is asked.

Arguments: ``model`` ("llama" or "moe"), ``changes`` to its configuration, ``options`` of ``LLM``,
``prompts``, ``length`` (tokens of a prompt), ``tokens`` (to generate for each). Answers with the
seconds of a batch and the most MiB that the process held during it.
"""

from __future__ import annotations

import time

import answers
import engines

given = answers.ARGUMENTS
llm = engines.start(given["model"], given["changes"], given["prompts"], given["options"])


def generate() -> dict[str, float]:
    """Generate the batch."""
    answers.forget_peak()
    started = time.perf_counter()
    outputs = engines.generate(llm, given["prompts"], given["length"], given["tokens"])
    taken = time.perf_counter() - started
    captured = [output.outputs[0].routed_experts is not None for output in outputs]
    if all(captured) != given["options"].get("enable_return_routed_experts", False):
        raise RuntimeError(
            "experts were captured where they should not be, or not where they should"
        )
    return {"s": taken, "MiB": answers.peak() / 2**20}


answers.serve(generate)
