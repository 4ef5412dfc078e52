"""Tiny MoE checkpoints with quantized experts and routes that no rounding can change.

Run as a script, with one JSON object. ``write``: a list of checkpoints to write, each with
``directory``, ``family``, ``form`` and ``seed``. ``follow``: a list of ``directory`` and
``sequences`` (of token ids); what transformers routes each of their tokens to is printed as the
last line.

Routes are written into the weights. The embedding of a token holds, for every MoE layer, one sign
an expert: +1 for the token's ``TOP_K`` experts of that layer, -1 for all others. A layer's router
reads its own signs. Attention and experts add little to a residual of scale 1, so that between the
last expert chosen and the first one left out there is a wide margin, which ``follow`` measures.

Experts are random: the packed four-bit numbers and their scales are drawn, not computed. The
oracle of ``mxfp4`` is transformers on the same file. It cannot read ModelOpt's ``nvfp4``; there the
numbers are also written out as bf16, in ``plain``. Knows nothing of vLLM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TOP_K = 4
VOCAB = 256
HIDDEN = 512  # what the kernels ask for: multiples of 256 (hidden) and 128 (intermediate)
INTERMEDIATE = 256
GAIN = 3.0  # router logits are +-GAIN
SMALL = 0.02
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
ATTENTION = {
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_size": HIDDEN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "pad_token_id": None,
    "bos_token_id": None,
}


class GptOss:
    """gpt-oss: every layer is MoE, softmax over the top k, biases everywhere, attention sinks."""

    model_type = "gpt_oss"
    experts = 32
    layers = 3
    moe_layers = range(3)
    router = "mlp.router"

    @classmethod
    def make(cls):
        from transformers import GptOssConfig, GptOssForCausalLM

        config = GptOssConfig(
            **ATTENTION,
            num_hidden_layers=cls.layers,
            intermediate_size=INTERMEDIATE,
            num_local_experts=cls.experts,
            num_experts_per_tok=TOP_K,
            sliding_window=128,
        )
        return GptOssForCausalLM(config)

    @staticmethod
    def choice(logits: torch.Tensor, _router: torch.nn.Module) -> torch.Tensor:
        return logits


class Glm:
    """GLM-4 MoE: a dense layer first, sigmoid scores with a bias, groups, a shared expert."""

    model_type = "glm4_moe"
    experts = 64
    layers = 3
    moe_layers = range(1, 3)
    router = "mlp.gate"

    @classmethod
    def make(cls):
        from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

        config = Glm4MoeConfig(
            **ATTENTION,
            num_hidden_layers=cls.layers,
            first_k_dense_replace=1,
            intermediate_size=INTERMEDIATE,
            moe_intermediate_size=INTERMEDIATE,
            n_routed_experts=cls.experts,
            num_experts_per_tok=TOP_K,
            n_group=2,  # with one, vLLM 0.29 takes a router that no CPU has; both are chosen
            topk_group=2,
            n_shared_experts=1,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
            num_mtp_layers=0,
            num_nextn_predict_layers=0,
            use_qk_norm=True,
        )
        return Glm4MoeForCausalLM(config)

    @staticmethod
    def choice(logits: torch.Tensor, router: torch.nn.Module) -> torch.Tensor:
        return logits.sigmoid() + router.e_score_correction_bias


FAMILIES = {"gpt-oss": GptOss, "glm": Glm}


def initialize(model: torch.nn.Module, family: Any, generator: torch.Generator) -> None:
    """Fill a model: see the module's docstring."""

    def normal(shape: torch.Size, scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * scale

    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.fill_(1)
        elif "sinks" in name:
            parameter.zero_()  # alike in all checkpoints: vLLM's own refit leaves them as they are
        elif name.endswith("bias"):
            parameter.copy_(normal(parameter.shape, SMALL))
        elif ".experts." in name:
            parameter.zero_()  # written by `write`
        elif parameter.ndim == 2:
            # Small where it is added to the residual: attention, dense MLPs, shared experts.
            scale = 0.1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            parameter.copy_(normal(parameter.shape, scale * parameter.shape[1] ** -0.5))
        else:
            raise AssertionError(f"{name} is not known")
    embedding = torch.randn(VOCAB, HIDDEN, generator=generator).sign()
    for place, layer in enumerate(family.moe_layers):
        mine = slice(place * family.experts, (place + 1) * family.experts)
        chosen = torch.rand(VOCAB, family.experts, generator=generator).topk(TOP_K).indices
        embedding[:, mine] = -1
        embedding[:, mine].scatter_(1, chosen, 1.0)
        router = model.model.layers[layer].get_submodule(family.router)
        router.weight.zero_()
        router.weight[:, mine] = GAIN * torch.eye(family.experts)
        if hasattr(router, "e_score_correction_bias"):
            router.e_score_correction_bias.copy_(normal((family.experts,), 0.05))
    model.model.embed_tokens.weight.copy_(embedding)


def codes(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Draw packed four-bit numbers, two a byte."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Return the numbers (..., 2n) of packed bytes (..., n): the low four bits are the first."""
    return torch.stack([FP4[(packed & 15).long()], FP4[(packed >> 4).long()]], -1).flatten(-2)


def mxfp4(family: Any, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Draw gpt-oss' experts: blocks of 32 numbers that share a power of two."""
    tensors = {}
    for layer in family.moe_layers:
        prefix = f"model.layers.{layer}.mlp.experts."
        # Sums of `inside` products with numbers of scale 3 come to about 1, and 0.1.
        shapes = {
            "gate_up_proj": (2 * INTERMEDIATE, HIDDEN, -6),
            "down_proj": (HIDDEN, INTERMEDIATE, -9),
        }
        for name, (outside, inside, exponent) in shapes.items():
            blocks = (family.experts, outside, inside // 32)
            tensors[f"{prefix}{name}_blocks"] = codes((*blocks, 16), generator)
            tensors[f"{prefix}{name}_scales"] = torch.randint(
                127 + exponent - 1, 127 + exponent + 1, blocks, generator=generator
            ).to(torch.uint8)
            bias = torch.randn(family.experts, outside, generator=generator) * SMALL
            tensors[f"{prefix}{name}_bias"] = bias.bfloat16()
    return tensors


def nvfp4(
    family: Any, generator: torch.Generator
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Draw ModelOpt's experts, one by one: blocks of 16 numbers that share an fp8 number.

    Return the packed tensors, and the same weights as bf16.
    """
    packed, plain = {}, {}
    for layer in family.moe_layers:
        for expert in range(family.experts):
            prefix = f"model.layers.{layer}.mlp.experts.{expert}."
            for name in ("gate_proj", "up_proj", "down_proj"):
                down = name == "down_proj"
                outside, inside = (HIDDEN, INTERMEDIATE) if down else (INTERMEDIATE, HIDDEN)
                weight = codes((outside, inside // 2), generator)
                scale = torch.rand(outside, inside // 16, generator=generator) * 64 + 32
                scale = scale.to(torch.float8_e4m3fn)
                # One for each tensor; gate and up must have the same.
                whole = torch.tensor(2.0**-15 if down else 2.0**-12)
                packed[f"{prefix}{name}.weight"] = weight
                packed[f"{prefix}{name}.weight_scale"] = scale
                packed[f"{prefix}{name}.weight_scale_2"] = whole
                # The activations' amax over what a block can hold: 448 of fp8 times 6 of fp4.
                packed[f"{prefix}{name}.input_scale"] = torch.tensor(8.0 / (448 * 6))
                blocks = unpack(weight).view(outside, inside // 16, 16)
                values = (blocks * scale.float()[..., None] * whole).view(outside, inside)
                plain[f"{prefix}{name}.weight"] = values.bfloat16()
    return packed, plain


MXFP4_CONFIG = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
_LEFT_OUT = ["lm_head", "*self_attn*", "*mlp.gate", "*shared_experts*", "model.layers.0.mlp*"]
NVFP4_CONFIG = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "group_size": 16,
    "ignore": _LEFT_OUT,
}


def save(directory: Path, model: torch.nn.Module, experts: dict, quantization: dict | None) -> None:
    """Write a model's weights in bf16 with these experts in place of its own."""
    tensors = {
        name: value if "e_score" in name else value.bfloat16()
        for name, value in model.state_dict().items()
        if ".experts." not in name
    }
    directory.mkdir(parents=True)
    save_file({**tensors, **experts}, directory / "model.safetensors", {"format": "pt"})
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    config |= {"dtype": "bfloat16"}
    if quantization:
        config["quantization_config"] = quantization
    (directory / "config.json").write_text(json.dumps(config, indent=1))


@torch.no_grad()
def write(directory: Path, *, family: str, form: str, seed: int) -> None:
    """Write a checkpoint; ``form`` is ``mxfp4`` (gpt-oss), ``nvfp4`` or ``bf16`` (GLM)."""
    kind = FAMILIES[family]
    generator = torch.Generator().manual_seed(seed)
    model = kind.make()
    initialize(model, kind, generator)
    if form == "mxfp4":
        save(directory, model, mxfp4(kind, generator), MXFP4_CONFIG)
        return
    packed, plain = nvfp4(kind, generator)
    if form == "nvfp4":
        save(directory, model, packed, NVFP4_CONFIG)
    save(directory / "plain" if form == "nvfp4" else directory, model, plain, None)


def load(directory: Path) -> torch.nn.Module:
    """Read a checkpoint with transformers, in fp32."""
    from transformers import AutoModelForCausalLM, Mxfp4Config

    plain = directory / "plain"
    config = json.loads((directory / "config.json").read_text())
    options = {}
    if config.get("quantization_config", {}).get("quant_method") == "mxfp4":
        options["quantization_config"] = Mxfp4Config(dequantize=True)
    where = plain if plain.exists() else directory
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **options)
    experts = model.model.layers[-1].mlp.experts.down_proj
    assert experts.abs().mean() > 0, "no experts were loaded"
    return model.float().eval()


@torch.inference_mode()
def follow(model: torch.nn.Module, tokens: list[int]) -> dict[str, Any]:
    """Return ``experts``, ``[layer][token] -> sorted ids`` (empty for a dense layer), ``margin``.

    The margin is the least difference, over all tokens and layers, between the score of the last
    expert that was chosen and that of the first that was not.
    """
    family = next(f for f in FAMILIES.values() if f.model_type == model.config.model_type)
    experts: dict[int, list[list[int]]] = {}
    margins: list[float] = []

    def note(layer: int):
        def hook(router, _arguments, output):
            logits, _, ids = output
            experts[layer] = [sorted(row) for row in ids.tolist()]
            best = family.choice(logits.float(), router).topk(TOP_K + 1).values
            margins.append((best[:, -2] - best[:, -1]).min().item())

        return hook

    hooks = [
        model.model.layers[layer].get_submodule(family.router).register_forward_hook(note(layer))
        for layer in family.moe_layers
    ]
    model(torch.tensor([tokens]), use_cache=False)
    for hook in hooks:
        hook.remove()
    answer = [experts.get(layer, []) for layer in range(family.layers)]
    return {"experts": answer, "margin": min(margins)}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    for request in arguments.get("write", []):
        write(Path(request.pop("directory")), **request)
    answers = []
    for request in arguments.get("follow", []):
        model = load(Path(request["directory"]))
        answers.append([follow(model, tokens) for tokens in request["sequences"]])
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
