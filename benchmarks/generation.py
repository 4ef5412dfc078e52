"""What generating costs: with every switch off, and with each that a CPU can show."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import lm_head
from benchmarks.context import Context, python
from benchmarks.measure import Aim, Figure, Section, alternate
from benchmarks.subject import Subject

# Half precision: vLLM's bf16 attention needs AMX that is set up, which not every CPU allows.
_DENSE: dict[str, Any] = {
    "model": "llama",
    "changes": {
        "vocab_size": 32768,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
    },
    "options": {"dtype": "float16"},
    "prompts": 8,
    "length": 32,
    "tokens": 32,
}
_EXPERTS: dict[str, Any] = {
    "model": "moe",
    "changes": {},
    "options": {"dtype": "float32"},
    "prompts": 8,
    "length": 32,
    "tokens": 32,
}


def measure(context: Context) -> Section:
    """Measure whole engines, and the head by itself."""
    rounds, starts = context.rounds(6), 1 if context.quick else 8
    stock, off, on = "stock", "overlay, no switch set", "overlay, NRL_VLLM_FP32_LM_HEAD=1"
    dense = _turns(
        context,
        {
            stock: (context.plain, _DENSE, {}),
            off: (context.overlaid, _DENSE, {}),
            on: (context.overlaid, _DENSE, {"NRL_VLLM_FP32_LM_HEAD": "1"}),
        },
        rounds,
        starts,
    )
    without, capture = "overlay", "overlay, enable_return_routed_experts"
    captured = {**_EXPERTS["options"], "enable_return_routed_experts": True}
    experts = _turns(
        context,
        {
            stock: (context.plain, _EXPERTS, {}),
            without: (context.overlaid, _EXPERTS, {}),
            capture: (context.overlaid, {**_EXPERTS, "options": captured}, {}),
        },
        rounds,
        starts,
    )
    head = lm_head.figures(
        python(context.overlaid),
        lambda way: context.engine(f"head-{way.replace(' ', '-')}"),
        context.kept / "logs",
        rounds=context.rounds(20),
        device="cpu",
        vocabulary=32768 if context.quick else 131072,
        hidden=1024 if context.quick else 2048,
        rows=64,
    )
    return Section(
        notes=[
            (
                f"vLLM {context.release} on a CPU, in one process, eager. A batch is "
                f"{_DENSE['prompts']} prompts of {_DENSE['length']} tokens, {_DENSE['tokens']} "
                "tokens each. A process is faster or slower than its like for as long as it "
                "lives, so a round is a new set of engines, which generate the batch in turns "
                f"{rounds} times; the median of these counts. The dense model is a Llama of four "
                "layers in float16 (hidden size 1024, vocabulary 32768), the other a GLM-4 MoE of "
                "four layers in float32 (16 experts, 4 a token); the weights are made up."
            ),
            (
                "On a CPU vLLM's own fp32 head casts the weight on every step, as the row "
                "`cast` does: only on CUDA and ROCm are there fp32 sums of a product in half "
                "precision, and this page has no figure of a GPU. `benchmarks/lm_head.py "
                "--device cuda` measures one."
            ),
        ],
        figures=[
            Figure("dense model, a batch", "s", dense["s"], Aim(off, "ratio", 1.01, 0.99)),
            Figure("dense model, peak memory", "MiB", dense["MiB"]),
            Figure("experts, a batch", "s", experts["s"], Aim(without, "ratio", 1.01, 0.99)),
            Figure("experts, peak memory", "MiB", experts["MiB"]),
            *head,
        ],
    )


def _turns(
    context: Context,
    ways: Mapping[str, tuple[Path, Mapping[str, Any], Mapping[str, str]]],
    rounds: int,
    starts: int,
) -> dict[str, dict[str, list[float]]]:
    """Start an engine for each way, all together, and let them generate in turns; start again.

    Returns the medians of each start.
    """
    taken: dict[str, dict[str, list[float]]] = {}
    for _ in range(starts):
        for name, samples in _set(context, ways, rounds).items():
            for way, values in samples.items():
                taken.setdefault(name, {}).setdefault(way, []).append(statistics.median(values))
    return taken


def _set(
    context: Context,
    ways: Mapping[str, tuple[Path, Mapping[str, Any], Mapping[str, str]]],
    rounds: int,
) -> dict[str, dict[str, list[float]]]:
    with contextlib.ExitStack() as stack:
        subjects: dict[str, Subject] = {}
        for number, (way, (home, arguments, extra)) in enumerate(ways.items()):
            name = f"generate-{arguments['model']}-{number}"
            env = context.engine(name, **extra)
            subject = Subject(python(home), "generate.py", env, context.log(name), **arguments)
            subjects[way] = stack.enter_context(subject)
        for subject in subjects.values():
            subject.receive()
        return alternate({way: subject.ask for way, subject in subjects.items()}, rounds)
