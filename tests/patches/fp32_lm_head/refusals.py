"""What has to refuse to start, each tried with vLLM's own configuration and loader.

Not a scenario of its own: ``heads.py`` runs it. The result of a try is the message of the error,
or None where vLLM went on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from tiny_models import LLAMA, MULTIMODAL

SWITCH = "NRL_VLLM_FP32_LM_HEAD"
# Everything quantized, the head too.
QUANTIZED = {
    "quant_method": "modelopt",
    "quantization": {"quant_algo": "FP8", "exclude_modules": []},
}


def attempt(value: str, function: Callable[[], object]) -> str | None:
    with mock.patch.dict(os.environ, {SWITCH: value}):
        try:
            function()
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
    return None


def run(configuration: Callable[..., Any]) -> dict[str, str | None]:
    from vllm.platforms import current_platform

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
    # A platform is the process's own; this one claims what a platform without fp32 would.
    without = [dtype for dtype in current_platform.supported_dtypes if dtype != torch.float32]
    with mock.patch.object(type(current_platform), "supported_dtypes", without):
        results["platform"] = attempt("1", lambda: configuration(LLAMA))
    return results


def run_loaded(
    configuration: Callable[..., Any], load: Callable[..., Any]
) -> dict[str, str | None]:
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    def build(model: dict) -> None:
        vllm_config = configuration(model)
        with set_current_vllm_config(vllm_config), set_default_torch_dtype(torch.bfloat16):
            initialize_model(vllm_config)

    return {
        "quantized": attempt("1", lambda: build({**LLAMA, "quantization_config": QUANTIZED})),
        "quantized off": attempt("0", lambda: build({**LLAMA, "quantization_config": QUANTIZED})),
    }
