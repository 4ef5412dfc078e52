"""vLLM's LM head by itself: one projection whenever it is asked.

Arguments: ``way`` ("model dtype", "fp32" or "cast"), ``device``, ``vocabulary``, ``hidden``,
``rows`` (tokens a step). Answers with the milliseconds of a projection, the most MiB beyond weight
and input (the logits included), and the dtype of the logits.
"""

from __future__ import annotations

import tempfile
import time

import answers
import torch
from models import LLAMA, write
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

given = answers.ARGUMENTS
device = torch.device(given["device"])
CUDA = device.type == "cuda"
vocabulary, hidden = given["vocabulary"], given["hidden"]

with tempfile.TemporaryDirectory() as scratch:
    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "head_dim": 128}
    heads = {"num_attention_heads": hidden // 128, "num_key_value_heads": hidden // 128}
    config = EngineArgs(
        model=write(scratch, LLAMA, **sizes, **heads),
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
    ).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            distributed_init_method=f"file://{scratch}/rendezvous",
            backend="nccl" if CUDA else "gloo",
        )
        ensure_model_parallel_initialized(1, 1)
        with device:
            head = ParallelLMHead(vocabulary, hidden, params_dtype=torch.bfloat16)
            processor = LogitsProcessor(vocabulary)
head.weight.data.normal_(0, 0.02)
head.quant_method.process_weights_after_loading(head)
states = torch.randn(given["rows"], hidden, device=device, dtype=torch.bfloat16)


def _project() -> torch.Tensor:
    if given["way"] == "cast":
        return torch.nn.functional.linear(states.float(), head.weight.float())
    logits: torch.Tensor = processor(head, states)
    return logits


@torch.inference_mode()
def project() -> dict[str, object]:
    """Project once, and measure it."""
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        answers.forget_peak()
        before = answers.resident()
    started = time.perf_counter()
    logits = _project()
    if CUDA:
        torch.cuda.synchronize()
    taken = time.perf_counter() - started
    most = (torch.cuda.max_memory_allocated() if CUDA else answers.peak()) - before
    return {"ms": 1e3 * taken, "MiB": most / 2**20, "dtype": str(logits.dtype)[6:]}


answers.serve(project)
