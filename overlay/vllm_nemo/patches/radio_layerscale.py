"""RADIO's LayerScale weights, which stock vLLM's loader skips (patch ``radio-layerscale``).

The function is a generator over the stream of weights that ``RadioModel.load_weights`` gets. It
takes LayerScale's weights and passes on the rest, so that vLLM's own loop stays as it is. A refit
calls ``load_weights`` once a batch. What a later batch must know is kept on the module, as a plain
attribute outside of its state dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo.patches.shared import radio_names as names
from vllm_nemo.patches.shared import refit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

    from vllm_nemo.patches.shared.radio_names import Weights

_SCALES = ("ls1", "ls2")
_ARRIVED = "_nemo_layer_scales"


def load_layer_scales(
    tower: nn.Module, weights: Weights, loaded: set[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Load each layer's ``ls1`` and ``ls2``, which vLLM multiplies its residuals by.

    At the end of the stream, a LayerScale that no call has ever loaded is set to
    ``config.initializer_factor``, as vLLM's constructor does. That is what a checkpoint without
    LayerScale means (C-RADIO's are folded into the weights), but the memory holds what
    ``load_format="dummy"`` or a level-2 sleep left in it. A value that was set this way does not
    count as loaded: a real one may follow, and after the next sleep it has to be set again.

    Source: vllm-project/vllm#39767 (closed), which loads them as well.

    Args:
        tower: vLLM's ``RadioModel``.
        weights: Names and tensors. LayerScale's have the shape (hidden,).
        loaded: The names of loaded parameters; the function adds its own.

    Yields:
        Every other name and tensor.
    """
    layers = tower.model.encoder.layers
    arrived: dict[int, set[str]] = tower.__dict__.setdefault(_ARRIVED, {})
    for name, weight in names.pairs(weights):
        target = names.layer_scale(name)
        if target is None or target[0] >= len(layers):
            yield name, weight
            continue
        index, scale = target
        layer = layers[index]
        refit.load(layer, scale, weight)
        arrived.setdefault(index, set()).add(scale)
        refit.hand_over(layer, arrived[index])
        loaded.add(f"model.encoder.layers.{index}.{scale}")
    factor = tower.config.initializer_factor
    for index, layer in enumerate(layers):
        for scale in _SCALES:
            if scale not in arrived.get(index, ()):
                refit.fill(layer, scale, factor)
