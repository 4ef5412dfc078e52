"""Scenario: the head of real models and layers, without an engine, in every way it is used.

Each case builds a model with vLLM's own loader, or the layers themselves, from a real
``VllmConfig``, and compares the logits with float64. A case that vLLM refuses gives its error.

Argument: ``device``.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.support import vllm_internals
from tests.support.fp32_lm_head import refusals
from tests.support.fp32_lm_head.float64 import compare, digest, reference
from tests.support.fp32_lm_head.tiny_models import (
    DRAFT,
    HEAD_STD,
    HIDDEN,
    LLAMA,
    MULTIMODAL,
    VOCAB,
    write_config,
)

ARGUMENTS = json.loads(sys.argv[1])
DEVICE = torch.device(ARGUMENTS.get("device", "cpu"))
ROWS = 33
NATIVE = {"head_dtype": "float32"}
# ModelOpt gives a head that it leaves out the method of unquantized linear layers.
LEFT_OUT = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}

_NUMBERS = itertools.count()
CASES: dict[str, Callable[[], dict[str, Any]]] = {}


def case(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    CASES[function.__name__] = function
    return function


def configuration(model: dict, **options: Any):
    # Relative to the scenario's directory: the path is part of the hash that runs compare.
    scratch = f"models/{next(_NUMBERS)}"
    Path(scratch).mkdir(parents=True)
    if "draft" in options:
        options["speculative_config"] = {
            "method": "eagle3",
            "model": write_config(scratch, "draft", options.pop("draft")),
            "num_speculative_tokens": 2,
        }
    return vllm_internals.configuration(
        write_config(scratch, "model", model),
        dtype="bfloat16",
        load_format="dummy",
        **{**ARGUMENTS["engine"], **options},
    )


def hidden_states() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(ROWS, HIDDEN, generator=generator).to(DEVICE, torch.bfloat16)


def fill(head: torch.nn.Module) -> torch.Tensor:
    """Give a head random weights, after it was loaded, as a refit does; return them."""
    generator = torch.Generator().manual_seed(4)
    values = torch.randn(head.weight.shape, generator=generator) * HEAD_STD
    head.weight.data.copy_(values)
    if "cpu_linear" in vars(head):
        # On a CPU vLLM's bf16 projection uses a packed copy, which a refit has to make again.
        vllm_internals.process_weights(head)
    return head.weight.detach()


def through_model(vllm_config: Any) -> dict[str, Any]:
    model = vllm_internals.load_model(vllm_config)
    inner = model.get_language_model() if hasattr(model, "get_language_model") else model
    # Some models with tied embeddings have no lm_head.
    weight = fill(getattr(inner, "lm_head", None) or inner.model.embed_tokens)
    logits = model.compute_logits(hidden_states())
    return {
        **compare(logits, reference(hidden_states(), weight[:VOCAB])),
        "digest": digest(logits),
    }


@case
def untied() -> dict[str, Any]:
    return through_model(configuration(LLAMA))


@case
def tied() -> dict[str, Any]:
    return through_model(configuration({**LLAMA, "tie_word_embeddings": True}))


@case
def multimodal() -> dict[str, Any]:
    return through_model(configuration(MULTIMODAL))


@case
def multimodal_native() -> dict[str, Any]:
    """Ask for the fp32 head as vLLM has it, without the variable's help."""
    return through_model(configuration(MULTIMODAL, hf_overrides=NATIVE))


@case
def untied_native() -> dict[str, Any]:
    return through_model(configuration(LLAMA, hf_overrides=NATIVE))


def layers(
    vllm_config: Any, vocabulary: int, *, bias: bool = False, quantization: Any = None, **options
):
    with vllm_internals.set_current_vllm_config(vllm_config), DEVICE:
        head = vllm_internals.ParallelLMHead(
            vocabulary,
            HIDDEN,
            bias=bias,
            params_dtype=torch.bfloat16,
            quant_config=quantization,
            prefix="lm_head",
        )
        processor = vllm_internals.LogitsProcessor(vocabulary, **options)
    if bias:
        head.bias.data.copy_(torch.linspace(-2, 2, len(head.bias)))
    if quantization is None:
        vllm_internals.process_weights(head)
    return head, processor


@case
def scaled_capped_padded_biased() -> dict[str, Any]:
    """A vocabulary that is padded, with bias, soft cap and scale; and its local top tokens."""
    head, processor = layers(configuration(LLAMA), 1000, bias=True, scale=0.5, soft_cap=10.0)
    weight = fill(head)[:1000]
    logits = processor(head, hidden_states(), head.bias)
    raw = reference(hidden_states(), weight) + head.bias[:1000].cpu().double()
    expected = 10.0 * torch.tanh(raw / 10.0) * 0.5
    top = processor.get_top_tokens(head, hidden_states(), head.bias)
    result = {
        **compare(logits, expected),
        "digest": digest(logits, top),
        "top": (top.cpu() == expected.argmax(-1)).double().mean().item(),
    }
    if hasattr(processor, "get_top_k_tokens"):
        # With a scale alone: this method applies soft cap and scale in the other order.
        head, processor = layers(configuration(LLAMA), 1000, bias=True, scale=0.5)
        fill(head)
        ids, values = processor.get_top_k_tokens(head, hidden_states(), 4, head.bias)
        best = (raw * 0.5).topk(4, dim=-1)
        result["top_k"] = (ids.cpu() == best.indices).double().mean().item()
        result["top_k_error"] = (values.cpu().double() - best.values).abs().mean().item()
    return result


@case
def three_dimensional() -> dict[str, Any]:
    head, processor = layers(configuration(LLAMA), VOCAB)
    weight = fill(head)
    hidden = hidden_states().view(3, ROWS // 3, HIDDEN)
    logits = processor(head, hidden)
    return {**compare(logits, reference(hidden, weight)), "digest": digest(logits)}


def left_out(**options: Any) -> dict[str, Any]:
    quantization = vllm_internals.ModelOptFp8Config.from_config(LEFT_OUT)
    head, processor = layers(configuration(LLAMA, **options), VOCAB, quantization=quantization)
    weight = fill(head)
    if DEVICE.type == "cpu" and processor_dtype(processor) in (None, torch.bfloat16):
        # Only the bf16 projection needs the packed weight; packing drops the plain one.
        head.weight.data = head.weight.data.clone()
        weight = head.weight.detach().clone()
        vllm_internals.process_weights(head)
    logits = processor(head, hidden_states())
    return {
        **compare(logits, reference(hidden_states(), weight)),
        "digest": digest(logits),
        "method": type(head.quant_method).__name__,
    }


def processor_dtype(processor: Any) -> torch.dtype | None:
    return getattr(processor, "head_dtype", None)


@case
def left_out_of_quantization() -> dict[str, Any]:
    return left_out()


@case
def left_out_of_quantization_native() -> dict[str, Any]:
    return left_out(hf_overrides=NATIVE)


@case
def lora() -> dict[str, Any]:
    head, processor = layers(configuration(LLAMA), VOCAB)
    weight = fill(head)
    lora_config = vllm_internals.LoRAConfig(max_lora_rank=8, max_loras=1, lora_dtype=torch.bfloat16)
    layer = vllm_internals.LogitsProcessorWithLoRA(processor, HIDDEN, torch.bfloat16, DEVICE, None)
    layer.create_lora_weights(1, lora_config)
    punica = vllm_internals.get_punica_wrapper(64, 64, DEVICE, lora_config=lora_config)
    layer.set_mapping(punica)
    mapping = vllm_internals.LoRAMapping((1,) * ROWS, (1,) * ROWS, is_prefill=False)
    punica.update_metadata(mapping, [1], 1, VOCAB)
    generator = torch.Generator().manual_seed(5)
    first = (torch.randn(8, HIDDEN, generator=generator) / 16).to(DEVICE, torch.bfloat16)
    second = torch.randn(VOCAB, 8, generator=generator).to(DEVICE, torch.bfloat16)
    layer.set_lora(0, first, second)
    logits = layer(head, hidden_states())
    expected = reference(hidden_states(), weight)
    change = reference(hidden_states(), first) @ second.cpu().double().T
    return {
        **compare(logits, expected + change),
        "digest": digest(logits),
        "change": change.abs().mean().item(),
    }


@case
def draft() -> dict[str, Any]:
    """An EAGLE-3 draft: its own head, and the dtype of the cached draft distribution."""
    vllm_config = configuration(LLAMA, draft=DRAFT)
    vllm_internals.load_model(vllm_config)
    draft_config = vllm_config.speculative_config.draft_model_config
    model = vllm_internals.load_model(vllm_config, draft_config)
    weight = fill(model.lm_head)
    logits = model.compute_logits(hidden_states())
    result = {**compare(logits, reference(hidden_states(), weight)), "digest": digest(logits)}
    cached = vllm_internals.cached_draft_dtype(vllm_config)
    if cached:
        result["cached"] = cached
    return result


@case
def travels() -> dict[str, Any]:
    """What a worker gets: a pickle of the configuration, and no variable of ours."""
    vllm_config = configuration(LLAMA)
    given = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith("NRL_VLLM_FP32")}
    try:
        arrived = pickle.loads(pickle.dumps(vllm_config))  # noqa: S301
        result = through_model(arrived)
        return {
            **result,
            "hash": vllm_config.compute_hash(),
            "model_hash": vllm_config.model_config.compute_hash(),
        }
    finally:
        os.environ.update(given)


def main() -> None:
    refused = refusals.run(configuration)
    vllm_internals.start_parallel_groups(configuration(LLAMA), device=DEVICE.type)
    refused.update(refusals.run_loaded(configuration))
    results = {}
    with torch.inference_mode():
        for name, function in CASES.items():
            try:
                results[name] = function()
            except Exception as error:  # noqa: BLE001
                traceback.print_exc()
                results[name] = {"error": f"{type(error).__name__}: {error}"}
    Path(os.environ["SCENARIO_RESULT"]).write_text(
        json.dumps({"cases": results, "refused": refused})
    )


if __name__ == "__main__":
    main()
