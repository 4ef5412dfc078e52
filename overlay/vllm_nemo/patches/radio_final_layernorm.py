"""The final LayerNorm of RADIO vision towers (patch ``radio-final-layernorm``).

Megatron-Core ends every block that is built from the language model's config with a LayerNorm once
that config has MTP layers, the vision tower's included. Checkpoints of such models carry it as
``vision_projector.vision_final_layernorm.*``, transformers 5.24 as ``vision_final_layernorm.*``;
vLLM up to 0.31 has no module for it, so the projector gets features of another scale than it was
trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo.patches.shared import radio_names as names
from vllm_nemo.patches.shared import refit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import nn
    from vllm.transformers_utils.config import PretrainedConfig

_ARRIVED = "_nemo_final_layernorm"
_AFFINE = frozenset({"weight", "bias"})


def add(model: nn.Module, config: PretrainedConfig, width: int) -> None:
    """Give a model ``vision_final_layernorm``: a LayerNorm over ``width`` features, or None.

    It is there only if the language model has MTP layers (``num_nextn_predict_layers``), and fp32
    whatever the model's dtype: a trainer keeps it so, and rounding its weights to bf16 changes a
    third of the outputs. It has no effect before both of its tensors have been loaded.
    """
    import torch

    model.__dict__[_ARRIVED] = set()
    if not getattr(config.text_config, "num_nextn_predict_layers", 0):
        model.vision_final_layernorm = None
        return
    epsilon = getattr(config.vision_config, "layer_norm_eps", 1e-6)
    model.vision_final_layernorm = torch.nn.LayerNorm(width, eps=epsilon, dtype=torch.float32)


def apply(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Normalise the tower's features ``(..., width)`` in fp32; returns their own dtype.

    Returns them as they are if the model has no such norm, or its weights never came.
    """
    if model.__dict__[_ARRIVED] != _AFFINE:
        return features
    return model.vision_final_layernorm(features.float()).to(features.dtype)


def load(
    model: nn.Module, weights: Iterable[tuple[str, torch.Tensor]], *, multimodal: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Load the final LayerNorm's weight and bias ``(width,)``; yield everything else.

    They are copied when they are seen, since a sender may reuse its buffers. With ``multimodal``
    False (all limits per prompt are zero) there is no tower to normalise: they are skipped.

    Raises:
        ValueError: if the model did not construct the norm, or it has no such parameter.
    """
    arrived: set[str] = model.__dict__[_ARRIVED]
    for name, weight in weights:
        parameter = names.final_layernorm(name)
        if parameter is None:
            yield name, weight
        elif multimodal:
            _load(model, name, parameter, weight)
            arrived.add(parameter)
            refit.hand_over(model.vision_final_layernorm, arrived)


def _load(model: nn.Module, name: str, parameter: str, weight: torch.Tensor) -> None:
    norm = model.vision_final_layernorm
    if norm is None:
        raise ValueError(
            f"{name!r} was offered to a model that did not construct the final vision LayerNorm: "
            "its text config has no MTP layers (num_nextn_predict_layers is 0 or not set). Set it "
            "to the trainer's value, through hf_overrides if need be (patch radio-final-layernorm)."
        )
    if parameter not in _AFFINE:
        raise ValueError(
            f"{name!r} is no weight of the final vision LayerNorm, which has 'weight' and 'bias' "
            "(patch radio-final-layernorm)."
        )
    refit.load(norm, parameter, weight)
