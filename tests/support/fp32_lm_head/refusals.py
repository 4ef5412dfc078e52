"""Tries what has to refuse to start, with vLLM's own configuration and loader.

Not a scenario of its own: ``heads.py`` runs it. The result of a try is the message of the error,
or None where vLLM went on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from tests.support import vllm_internals
from tests.support.fp32_lm_head.tiny_models import LLAMA, MULTIMODAL

SWITCH = "NRL_VLLM_FP32_LM_HEAD"
# Everything is quantized, the head too.
QUANTIZED = {
    "quant_method": "modelopt",
    "quantization": {"quant_algo": "FP8", "exclude_modules": []},
}


def attempt(value: str, function: Callable[[], object]) -> str | None:
    dtype = torch.get_default_dtype()
    with mock.patch.dict(os.environ, {SWITCH: value}):
        try:
            function()
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        finally:
            # vLLM does not put it back after an error.
            torch.set_default_dtype(dtype)
    return None


def run(configuration: Callable[..., Any]) -> dict[str, str | None]:
    platform = vllm_internals.current_platform
    results = {
        f"value {value}": attempt(value, lambda: configuration(LLAMA))
        for value in ("", "0", "true", "yes", "2", " 1")
    }
    for given in ("model", "bfloat16", "float16"):
        results[f"override {given}"] = attempt(
            "1", lambda given=given: configuration(LLAMA, hf_overrides={"head_dtype": given})
        )
    results["override float32"] = attempt(
        "1", lambda: configuration(LLAMA, hf_overrides={"head_dtype": "float32"})
    )
    results["override off"] = attempt(
        "0", lambda: configuration(LLAMA, hf_overrides={"head_dtype": "bfloat16"})
    )
    results["checkpoint"] = attempt("1", lambda: configuration({**LLAMA, "head_dtype": "bfloat16"}))
    text = {**MULTIMODAL["text_config"], "head_dtype": "bfloat16"}
    nested = {**MULTIMODAL, "text_config": text}
    results["nested"] = attempt("1", lambda: configuration(nested))
    # A process has one platform; this one claims to be without fp32.
    without = [dtype for dtype in platform.supported_dtypes if dtype != torch.float32]
    with mock.patch.object(type(platform), "supported_dtypes", without):
        results["platform"] = attempt("1", lambda: configuration(LLAMA))
    return results


def run_loaded(configuration: Callable[..., Any]) -> dict[str, str | None]:
    def build(model: dict) -> None:
        vllm_internals.construct_model(configuration(model), torch.bfloat16)

    register_outsiders()
    return {
        "own projection": attempt("1", lambda: build({**LLAMA, "architectures": ["Own"]})),
        "own configuration": attempt("1", lambda: build({**LLAMA, "architectures": ["Fresh"]})),
        "own projection off": attempt("0", lambda: build({**LLAMA, "architectures": ["Own"]})),
        "quantized": attempt("1", lambda: build({**LLAMA, "quantization_config": QUANTIZED})),
        "quantized off": attempt("0", lambda: build({**LLAMA, "quantization_config": QUANTIZED})),
    }


def register_outsiders() -> None:
    """Register two models of the kind that vLLM does not have itself."""
    from transformers import LlamaConfig
    from vllm import ModelRegistry

    llama = vllm_internals.LlamaForCausalLM

    class Own(llama):
        """Projects by itself."""

        def __init__(self, *, vllm_config, prefix=""):
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            self.logits_processor = torch.nn.Identity()

    class Fresh(llama):
        """Builds its head from an HF configuration that vLLM has never seen."""

        def __init__(self, *, vllm_config, prefix=""):
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            fresh = vllm_config.with_hf_config(LlamaConfig(**LLAMA))
            with vllm_internals.set_current_vllm_config(fresh):
                self.logits_processor = vllm_internals.LogitsProcessor(LLAMA["vocab_size"])

    ModelRegistry.register_model("Own", Own)
    ModelRegistry.register_model("Fresh", Fresh)
