"""Scenario: does vLLM read the NVFP4 checkpoint as it was written? No kernel is needed.

Result: ``weights``, how many packed tensors there are; ``different``, the names of those that
vLLM's own dequantization makes other numbers of than were written as bf16; ``quantized``, the
modules that vLLM finds to be quantized.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.support import vllm_internals
from tests.support.routed_experts_capture import quantized_models

MODULES = [
    "lm_head",
    *(
        f"model.layers.{layer}.{module}"
        for layer in range(quantized_models.Glm.layers)
        for module in ("self_attn.qkv_proj", "self_attn.o_proj", "self_attn.attn")
    ),
    *(f"model.layers.0.mlp.{module}" for module in ("gate_up_proj", "down_proj")),
    *(
        f"model.layers.{layer}.mlp.{module}"
        for layer in quantized_models.Glm.moe_layers
        for module in (
            "gate",
            "experts",
            "shared_experts.gate_up_proj",
            "shared_experts.down_proj",
        )
    ),
]


def main() -> None:
    model = Path.cwd() / "model"
    quantized_models.write(model, family="glm", form="nvfp4", seed=0)
    packed = load_file(model / "model.safetensors")
    plain = load_file(model / "plain" / "model.safetensors")
    names = [name.removesuffix("_scale") for name in packed if name.endswith(".weight_scale")]
    different = [
        name
        for name in names
        if not torch.equal(
            vllm_internals.dequantize_to_dtype(
                packed[name],
                packed[f"{name}_scale"],
                packed[f"{name}_scale_2"],
                torch.bfloat16,
                block_size=16,
                swizzle=False,
            ),
            plain[name],
        )
    ]
    config = json.loads((model / "config.json").read_text())["quantization_config"]
    read = vllm_internals.ModelOptNvFp4Config.from_config(config)
    read.packed_modules_mapping = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    result = {
        "weights": len(names),
        "different": different,
        "quantized": [name for name in MODULES if not read.is_layer_excluded(name)],
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
