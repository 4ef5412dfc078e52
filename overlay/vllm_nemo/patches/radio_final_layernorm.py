"""The final LayerNorm of RADIO vision towers (patch ``radio-final-layernorm``).

Megatron-Core builds the vision tower from the language model's config. If that config has MTP
layers, Megatron-Core ends every block with a LayerNorm, the vision tower's too. Checkpoints have it
as ``vision_projector.vision_final_layernorm.*``, transformers 5.24 as ``vision_final_layernorm.*``.
vLLM up to 0.31 has no module for it, so the projector gets features of another scale than it was
trained on. Since 0.32 it has one, of the same name, that does not survive a refit and needs no
weights to have an effect: ``add`` replaces it, ``apply`` stands where it was called, and ``load``
takes the weights before vLLM's loader sees them. Nothing is normalised twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo.patches.shared import radio_names as names
from vllm_nemo.patches.shared import refit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import nn
    from transformers import PretrainedConfig

_ARRIVED = "_nemo_final_layernorm"
_AFFINE = frozenset({"weight", "bias"})


def add(model: nn.Module, config: PretrainedConfig, width: int) -> None:
    """Give a model the attribute ``vision_final_layernorm``: a LayerNorm, or None.

    The norm is in fp32 whatever the model's dtype: a trainer keeps it so, and rounding its weights
    to bf16 changes a third of the outputs. It has no effect until both of its tensors are loaded.

    Args:
        model: vLLM's Nemotron VL model, which is being constructed.
        config: Its HF configuration. There is a norm only if the text config has MTP layers
            (``num_nextn_predict_layers``).
        width: How many features the tower has.
    """
    import torch

    model.__dict__[_ARRIVED] = set()
    if not getattr(config.text_config, "num_nextn_predict_layers", 0):
        model.vision_final_layernorm = None
        return
    epsilon = getattr(config.vision_config, "layer_norm_eps", 1e-6)
    model.vision_final_layernorm = torch.nn.LayerNorm(width, eps=epsilon, dtype=torch.float32)


def apply(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Normalise the tower's features, in fp32.

    Args:
        model: A model that went through ``add``.
        features: (..., width), any float dtype.

    Returns:
        (..., width), in the dtype of ``features``. The features themselves, if the model has no
        norm or not all of its weights have come.
    """
    if model.__dict__[_ARRIVED] != _AFFINE:
        return features
    return model.vision_final_layernorm(features.float()).to(features.dtype)


def load(
    model: nn.Module, weights: Iterable[tuple[str, torch.Tensor]], *, multimodal: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Load the final LayerNorm's weight and bias out of a stream of weights.

    They are copied when they come, because a sender may reuse its buffers.

    Args:
        model: A model that went through ``add``.
        weights: Names and tensors. The norm's have the shape (width,).
        multimodal: False if the engine has no tower (all limits per prompt are zero). The norm's
            weights are then dropped.

    Yields:
        Every other name and tensor.

    Raises:
        ValueError: if the model has no such norm, or the norm has no such parameter.
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
            f"vllm-nemo (patch radio-final-layernorm): {name!r} was sent to a model without a "
            "final vision LayerNorm: its text config has no MTP layers (num_nextn_predict_layers "
            "is 0 or not set). Set it to the trainer's value in config.json or in hf_overrides."
        )
    if parameter not in _AFFINE:
        raise ValueError(
            f"vllm-nemo (patch radio-final-layernorm): {name!r} is no parameter of the final "
            "vision LayerNorm, which has 'weight' and 'bias'."
        )
    refit.load(norm, parameter, weight)
