"""RADIO's table of names: which parameter of vLLM a weight is, in every format that is sent.

========================  =====================================================================
legacy                    released BF16 checkpoints (timm): ``radio_model.model.blocks.3.attn.qkv``
native, remote code       ``encoder.layer.3.attention.attention.query``
native, transformers      ``encoder.layer.3.attention.q_proj`` (transformers 5.24 ``RadioModel``)
hybrid                    ``radio_model.model.blocks.3.attention.attention.query`` (Automodel 0.6)
========================  =====================================================================

Sources: transformers 5.24 (``models/radio``, ``conversion_mapping.py``), NVIDIA-NeMo/RL#3990 and
#4036, NVlabs/RADIO#114 (``ls1.grandma``), NVIDIA/TensorRT-LLM#18526 (``vision_projector.mlp1``).
One set of rules serves all formats: a native attention name means the same below a legacy prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    Weights = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]

LEGACY_PREFIX = "radio_model."

# The longest first. The second is how SGLang wraps the native model.
_PREFIXES = ("radio_model.hf_model.", LEGACY_PREFIX)

# Without one of the prefixes, only these names are the tower's: the state dict of a C-RADIO model
# has other parts (adaptors), too.
_NATIVE_ROOTS = ("encoder.layer.", "embeddings.")

# vLLM normalises pixels in the processor, and reads the summaries' indices from the config.
_UNUSED_BUFFERS = re.compile(r"summary_idxs|input_conditioner\..*")

_BLOCK = re.compile(r"(?:model\.blocks|encoder\.layer)\.(\d+)\.(.+)")
_LAYER_SCALE = re.compile(r"ls([12])(?:\.(?:grandma|gamma|lambda1))?|layer_scale([12])\.lambda1")
_SPLIT_ATTENTION = re.compile(
    r"attention\.(?:attention\.(?P<role>query|key|value)|(?P<letter>[qkv])_proj)\.(?P<leaf>\w+)"
)
_ATTENTION_OUTPUT = re.compile(r"attention\.(?:output\.dense|o_proj)\.(\w+)")
_EMBEDDINGS = (
    (re.compile(r"embeddings\.patch_projection\.(\w+)"), r"embedder.\1"),
    (re.compile(r"embeddings\.video_patch_projection\.(\w+)"), r"video_embedder.\1"),
    (re.compile(r"embeddings\.position_embedding"), r"pos_embed"),
    (re.compile(r"embeddings\.cls_register_token"), r"cls_token.token"),
    (re.compile(r"model\.patch_generator\.(.+)"), r"\1"),
)

# The projector between tower and language model is an ``nn.Sequential`` in vLLM.
_PROJECTORS = {
    "vision_projector.mlp1.": {"norm": "0", "linear1": "1", "linear2": "3"},
    "multi_modal_projector.": {"layer_norm": "0", "linear_1": "1", "linear_2": "3"},
}

FINAL_LAYERNORM_PREFIXES = ("vision_projector.vision_final_layernorm.", "vision_final_layernorm.")


class Target(NamedTuple):
    """Where a tensor of the tower goes in vLLM's ``RadioModel``.

    Attributes:
        parameter: The name in ``RadioModel``, such as ``model.encoder.layers.3.attn.qkv.bias``.
        shard: ``"q"``, ``"k"`` or ``"v"`` for that part of a fused parameter; None for the whole.
    """

    parameter: str
    shard: str | None = None


def resolve(name: str) -> Target | None:
    """Tell where a tensor goes.

    Args:
        name: Its name without ``vision_model.``.

    Returns:
        The place; None if no rule fits the name. The parameter need not exist: the model may have
        fewer layers, or no biases.
    """
    path = _strip(name)
    block = _BLOCK.fullmatch(path)
    if block is not None:
        inside = _resolve_in_block(block[2])
        return Target(f"model.encoder.layers.{block[1]}.{inside.parameter}", inside.shard)
    for pattern, parameter in _EMBEDDINGS:
        match = pattern.fullmatch(path)
        if match is not None:
            return Target(f"model.patch_generator.{match.expand(parameter)}")
    return None


def _resolve_in_block(path: str) -> Target:
    scale = _LAYER_SCALE.fullmatch(path)
    if scale is not None:
        return Target(f"ls{scale[1] or scale[2]}")
    split = _SPLIT_ATTENTION.fullmatch(path)
    if split is not None:
        return Target(f"attn.qkv.{split['leaf']}", split["letter"] or split["role"][0])
    return Target(_ATTENTION_OUTPUT.sub(r"attn.proj.\1", path))


def is_expected(name: str) -> bool:
    """Tell whether a name should fit a parameter of the tower.

    Args:
        name: A name without ``vision_model.``.

    Returns:
        True for the tower's names. False for its buffers that vLLM does not use, and for other
        parts of a C-RADIO model.
    """
    path = _strip(name)
    if _UNUSED_BUFFERS.fullmatch(path):
        return False
    return path != name or path.startswith(_NATIVE_ROOTS)


def legacy(parameter: str) -> str:
    """Return the name by which stock vLLM's loader knows a parameter of its ``RadioModel``.

    Args:
        parameter: The name of the parameter in vLLM.
    """
    return LEGACY_PREFIX + parameter.replace("model.encoder.layers.", "model.blocks.", 1)


def layer_scale(name: str) -> tuple[int, str] | None:
    """Return the layer's index and ``"ls1"`` or ``"ls2"`` for a LayerScale's name; else None.

    Args:
        name: A name of a weight.
    """
    block = _BLOCK.fullmatch(_strip(name))
    if block is None:
        return None
    scale = _LAYER_SCALE.fullmatch(block[2])
    return None if scale is None else (int(block[1]), f"ls{scale[1] or scale[2]}")


def layer_index(name: str) -> int | None:
    """Return the index of the layer that a name belongs to; None if it belongs to no layer.

    Args:
        name: A name of a weight.
    """
    block = _BLOCK.fullmatch(_strip(name))
    return None if block is None else int(block[1])


def projector(name: str) -> str | None:
    """Return vLLM's name of a projector weight.

    Args:
        name: A name in the whole model.

    Returns:
        The name below ``mlp1.``; "" for a name below a projector's prefix that fits none of its
        layers; None for any other name.
    """
    for prefix, layers in _PROJECTORS.items():
        if name.startswith(prefix):
            layer, _, leaf = name[len(prefix) :].partition(".")
            return f"mlp1.{layers[layer]}.{leaf}" if layer in layers and leaf else ""
    return None


def final_layernorm(name: str) -> str | None:
    """Return the end of a final LayerNorm's name (``weight``, ``bias``); None for other names.

    Args:
        name: A name of a weight.
    """
    for prefix in FINAL_LAYERNORM_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return None


def _strip(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def pairs(weights: Weights) -> Iterable[tuple[str, torch.Tensor]]:
    """Return the pairs of names and tensors of a stream of weights, or of a state dict.

    Args:
        weights: The stream, or the state dict.
    """
    return weights.items() if isinstance(weights, Mapping) else weights
