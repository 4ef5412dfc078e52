"""Scenario: the head split over two real processes (gloo), with the variable off and on.

Argument: ``device``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tests.support import vllm_internals
from tests.support.fp32_lm_head.float64 import compare, reference
from tests.support.fp32_lm_head.tiny_models import HEAD_STD, HIDDEN, LLAMA, write_config

# Not a multiple of vLLM's padding, so the second rank's part is padded.
VOCAB = 1000
ROWS = 17


def rank(number: int, rendezvous: str, model: str, target: Path) -> None:
    generator = torch.Generator().manual_seed(6)
    weight = (torch.randn(VOCAB, HIDDEN, generator=generator) * HEAD_STD).bfloat16()
    hidden = torch.randn(ROWS, HIDDEN, generator=generator).bfloat16()
    expected = reference(hidden, weight)
    results = {}
    for name, value in (("off", "0"), ("on", "1")):
        os.environ["NRL_VLLM_FP32_LM_HEAD"] = value
        vllm_config = vllm_internals.configuration(
            model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True
        )
        if name == "off":
            vllm_internals.start_parallel_groups(vllm_config, number, 2, rendezvous=rendezvous)
        with vllm_internals.set_current_vllm_config(vllm_config):
            head = vllm_internals.ParallelLMHead(
                VOCAB, HIDDEN, params_dtype=torch.bfloat16, prefix="lm_head"
            )
            processor = vllm_internals.LogitsProcessor(VOCAB)
        head.weight_loader(head.weight, weight)
        vllm_internals.process_weights(head)
        with torch.inference_mode():
            logits = processor(head, hidden)
            top = processor.get_top_tokens(head, hidden)
        if number == 0:
            agreeing = (top == expected.argmax(-1)).double().mean().item()
            results[name] = {**compare(logits, expected), "top": agreeing}
    if number == 0:
        target.write_text(json.dumps(results))


def main() -> None:
    if len(sys.argv) > 2:
        number, rendezvous, model, target = sys.argv[1:]
        rank(int(number), rendezvous, model, Path(target))
        return
    with tempfile.TemporaryDirectory() as scratch:
        model = write_config(scratch, "model", LLAMA)
        command = [f"file://{scratch}/rendezvous", model, os.environ["SCENARIO_RESULT"]]
        # vLLM names the ranks' shared memory by it.
        env = {**os.environ, "VLLM_DIST_IDENT": Path(scratch).name}
        ranks = [
            subprocess.Popen([sys.executable, __file__, str(number), *command], env=env)
            for number in range(2)
        ]
        assert [process.wait(300) for process in ranks] == [0, 0]


if __name__ == "__main__":
    main()
