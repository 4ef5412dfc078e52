"""The engines that are measured, with weights that are made up, and the batch they generate."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models import LLAMA, MOE, write

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput


def start(
    model: str, changes: Mapping[str, Any], sequences: int, options: Mapping[str, Any]
) -> LLM:
    """Start an engine in this process.

    Args:
        model: "llama" or "moe".
        changes: To the model's configuration.
        sequences: The most that it generates at a time.
        options: More of ``LLM``.
    """
    from vllm import LLM

    with tempfile.TemporaryDirectory() as scratch:
        return LLM(
            write(scratch, {"llama": LLAMA, "moe": MOE}[model], **changes),
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            enable_prefix_caching=False,
            max_model_len=256,
            max_num_seqs=sequences,
            seed=0,
            **options,
        )


def generate(llm: LLM, prompts: int, length: int, tokens: int) -> list[RequestOutput]:
    """Generate a number of tokens for each of a number of prompts of one length.

    Raises RuntimeError where it is not that many.
    """
    from vllm import SamplingParams

    outputs = llm.generate(
        [
            {"prompt_token_ids": [(seed * 37 + i * 11) % 1000 + 1 for i in range(length)]}
            for seed in range(prompts)
        ],
        SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
        use_tqdm=False,
    )
    if any(len(output.outputs[0].token_ids) != tokens for output in outputs):
        raise RuntimeError("the engine generated too little")
    return outputs
