"""An engine that generates the same batch whenever it is asked.

Arguments: ``model`` ("llama" or "moe"), ``changes`` to its configuration, ``options`` of ``LLM``,
``prompts``, ``length`` (tokens of a prompt), ``tokens`` (to generate for each). Answers with the
seconds of a batch and the most MiB that the process held during it.
"""

from __future__ import annotations

import tempfile
import time

import answers
from models import LLAMA, MOE, write

given = answers.ARGUMENTS

from vllm import LLM, SamplingParams  # noqa: E402

with tempfile.TemporaryDirectory() as scratch:
    base = {"llama": LLAMA, "moe": MOE}[given["model"]]
    llm = LLM(
        write(scratch, base, **given["changes"]),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=256,
        max_num_seqs=given["prompts"],
        seed=0,
        **given["options"],
    )
prompts = [
    {"prompt_token_ids": [(seed * 37 + i * 11) % 1000 + 1 for i in range(given["length"])]}
    for seed in range(given["prompts"])
]
sampling = SamplingParams(
    temperature=0, max_tokens=given["tokens"], ignore_eos=True, detokenize=False
)


def generate() -> dict[str, float]:
    """Generate the batch."""
    answers.forget_peak()
    started = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    taken = time.perf_counter() - started
    if any(len(output.outputs[0].token_ids) != given["tokens"] for output in outputs):
        raise RuntimeError("the engine generated too little")
    captured = [output.outputs[0].routed_experts is not None for output in outputs]
    if all(captured) != given["options"].get("enable_return_routed_experts", False):
        raise RuntimeError(
            "experts were captured where they should not be, or not where they should"
        )
    return {"s": taken, "MiB": answers.peak() / 2**20}


answers.serve(generate)
