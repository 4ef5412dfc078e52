"""Scenario: what the head of a real vocabulary allocates, beside its logits.

Arguments: ``device`` (a CUDA device), ``vocabulary``, ``hidden``, ``rows``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from tests.support import vllm_internals
from tests.support.fp32_lm_head import heads
from tests.support.fp32_lm_head.float64 import compare
from tests.support.fp32_lm_head.tiny_models import HEAD_STD


def main() -> None:
    arguments = json.loads(sys.argv[1])
    vocabulary, hidden, rows = (arguments[name] for name in ("vocabulary", "hidden", "rows"))
    heads.HIDDEN = hidden
    vllm_config = heads.configuration(heads.LLAMA)
    vllm_internals.start_parallel_groups(vllm_config, device="cuda")
    head, processor = heads.layers(vllm_config, vocabulary)
    with torch.inference_mode():
        head.weight.normal_(0, HEAD_STD)
        states = torch.randn(rows, hidden, device=heads.DEVICE, dtype=torch.bfloat16)
        processor(head, states)  # cuBLAS allocates its workspace once
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        logits = processor(head, states)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        # A part of the vocabulary is enough to measure the error.
        some = slice(0, 4096)
        expected = states.cpu().double() @ head.weight[some].cpu().double().T
    result = {
        **compare(logits[:, some], expected),
        "beside_logits": peak - logits.nbytes,
        "fp32_copy": vocabulary * hidden * 4,
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
