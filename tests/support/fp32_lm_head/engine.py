"""Scenario: a tiny Nemotron-H in a real engine; what its head computes, against float64.

The inputs and outputs of the head are recorded by a hook on the ``LogitsProcessor``. What the
engine returns (log-probabilities of the whole vocabulary, for prompt and sampled tokens) is
compared with the float64 log-softmax of the same rows.

Arguments: ``device``, ``engine`` (arguments of ``LLM``).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch

from tests.support.fp32_lm_head.float64 import compare, distance, reference
from tests.support.fp32_lm_head.tiny_models import VOCAB, write_nemotron_h

PROMPTS = 8
TOKENS = 24
LENGTH = 12


def main() -> None:
    from vllm import LLM, SamplingParams

    arguments = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        llm = LLM(
            model=write_nemotron_h(scratch),
            dtype="bfloat16",
            max_logprobs=-1,
            **{**arguments["engine"], "max_num_seqs": PROMPTS},
        )
    recorded: list[tuple[torch.Tensor, torch.Tensor]] = []
    weight = llm.apply_model(lambda model: watch(model, recorded))[0]

    generator = torch.Generator().manual_seed(1)
    prompts = [
        {"prompt_token_ids": torch.randint(3, VOCAB, (LENGTH,), generator=generator).tolist()}
        for _ in range(PROMPTS)
    ]
    sampling = SamplingParams(
        temperature=1.0, seed=1, max_tokens=TOKENS, ignore_eos=True, logprobs=-1, detokenize=False
    )
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    steps = [pair for pair in recorded if pair[1] is not None]
    hidden = torch.stack([h for h, _ in steps])
    logits = torch.stack([logits for _, logits in steps])
    assert hidden.shape[:2] == (TOKENS, PROMPTS), hidden.shape
    expected = reference(hidden, weight)
    sampled = torch.stack([distribution(o.outputs[0].logprobs) for o in outputs], dim=1)
    chosen = torch.tensor([o.outputs[0].token_ids for o in outputs]).T.unsqueeze(-1)
    # The head's own logits show whether rows and requests were paired rightly.
    own = logits.cpu().float().log_softmax(-1)

    recorded.clear()
    scored = SamplingParams(
        temperature=1.0, max_tokens=1, ignore_eos=True, prompt_logprobs=-1, detokenize=False
    )
    (scored_output,) = llm.generate(prompts[:1], scored, use_tqdm=False)
    (prompt_rows,) = [pair for pair in recorded if len(pair[0]) == LENGTH - 1]
    prompt = distribution(scored_output.prompt_logprobs[1:])

    result = {
        "head": compare(logits, expected),
        "sampled": distance(
            sampled.gather(-1, chosen), expected.log_softmax(-1).gather(-1, chosen)
        ),
        "distribution": distance(sampled, expected.log_softmax(-1)),
        "pairing": distance(sampled, own),
        "prompt": distance(prompt, reference(prompt_rows[0], weight).log_softmax(-1)),
        "weight": str(weight.dtype),
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


def watch(model: torch.nn.Module, recorded: list) -> torch.Tensor:
    """Record the rows that go through the model's head, and return the head's weight."""

    def record(_module, inputs, output):
        _, hidden = inputs[:2]
        recorded.append((hidden.detach().clone(), output.detach().clone()))

    model.logits_processor.register_forward_hook(record)
    return model.lm_head.weight.detach().clone()[:VOCAB]


def distribution(positions: list) -> torch.Tensor:
    """Turn vLLM's dictionaries of log-probabilities into a tensor (positions, vocabulary)."""
    rows = torch.full((len(positions), VOCAB), float("nan"), dtype=torch.float64)
    for row, position in zip(rows, positions, strict=True):
        for token, value in position.items():
            row[token] = value.logprob
    assert not rows.isnan().any()
    return rows


if __name__ == "__main__":
    main()
