"""Peak memory and time of vLLM's LM head in the model's dtype, in fp32, and in fp32 by a cast.

Run it with the interpreter of an environment that has vLLM and the overlay. Each way runs in a
process of its own; "cast" is what an fp32 head costs without the patch's way of doing it (on a CPU
the two are the same: only CUDA and ROCm hand out the fp32 sums of a bf16 product).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {"model dtype": "0", "fp32": "1", "cast": "1"}


def main() -> None:
    """Measure every way, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--vocabulary", type=int, default=131072)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=64, help="tokens a step (default: 64)")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(_measure(options)))
        return
    results = {way: _in_process(way) for way in WAYS}
    copy = options.vocabulary * options.hidden * 4
    if options.json:
        sizes = {name: getattr(options, name) for name in ("vocabulary", "hidden", "rows", "runs")}
        print(json.dumps({**sizes, "fp32_copy_bytes": copy, "ways": results}, indent=2))
        return
    print(f"{options.vocabulary} x {options.hidden}, {options.rows} rows, on {options.device}")
    print(f"an fp32 copy of the weight is {copy / 2**20:.0f} MiB\n")
    print(f"{'head':<12} {'logits':<15} {'median ms':>10} {'fastest ms':>11} {'peak MiB':>9}")
    for way, row in results.items():
        print(
            f"{way:<12} {row['dtype']:<15} {row['median_ms']:>10.2f} {row['fastest_ms']:>11.2f} "
            f"{row['peak_bytes'] / 2**20:>9.0f}"
        )
    print("\npeak: beyond weight and input, the logits included")


def _in_process(way: str) -> dict[str, object]:
    process = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--way", way],
        env={**os.environ, "NRL_VLLM_FP32_LM_HEAD": WAYS[way], "VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    row: dict[str, object] = json.loads(process.stdout.splitlines()[-1])
    return row


def _measure(options: argparse.Namespace) -> dict[str, object]:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.logits_processor import LogitsProcessor
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    device = torch.device(options.device)
    with tempfile.TemporaryDirectory() as scratch:
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": options.vocabulary,
            "hidden_size": options.hidden,
            "num_hidden_layers": 1,
            "num_attention_heads": options.hidden // 128,
            "head_dim": 128,
        }
        Path(scratch, "config.json").write_text(json.dumps(config))
        vllm_config = EngineArgs(
            model=scratch, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True
        ).create_engine_config()
        with set_current_vllm_config(vllm_config):
            init_distributed_environment(
                world_size=1,
                rank=0,
                local_rank=0,
                distributed_init_method=f"file://{scratch}/rendezvous",
                backend="nccl" if device.type == "cuda" else "gloo",
            )
            ensure_model_parallel_initialized(1, 1)
            with device:
                head = ParallelLMHead(
                    options.vocabulary, options.hidden, params_dtype=torch.bfloat16
                )
                processor = LogitsProcessor(options.vocabulary)
        head.weight.data.normal_(0, 0.02)
        head.quant_method.process_weights_after_loading(head)
        rows = torch.randn(options.rows, options.hidden, device=device, dtype=torch.bfloat16)

        def project() -> torch.Tensor:
            if options.way == "cast":
                return torch.nn.functional.linear(rows.float(), head.weight.float())
            logits: torch.Tensor = processor(head, rows)
            return logits

        with torch.inference_mode():
            return _time(project, device, options.runs)


def _time(project, device, runs: int) -> dict[str, object]:  # noqa: ANN001
    import torch

    cuda = device.type == "cuda"
    # The first call of a process allocates libraries' workspaces; a GPU's are then kept.
    if cuda:
        project()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if cuda else _resident()
    dtype = str(project().dtype)
    if cuda:
        torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() if cuda else _peak_resident()) - before
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        project()
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1000)
    return {
        "dtype": dtype.removeprefix("torch."),
        "median_ms": statistics.median(times),
        "fastest_ms": min(times),
        "peak_bytes": peak,
    }


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
