"""RADIO's LayerScale weights, which stock vLLM's loader skips (patch ``radio-layerscale``).

The function is a generator over the stream of weights that ``RadioModel.load_weights`` gets: it
takes what it understands and passes on the rest, so that vLLM's own loop stays as it is.
``load_weights`` is called once a batch of a refit; what a later batch must know is kept on the
module, as a plain attribute, outside of its state dict.
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

    Yields everything else. Names of parameters that were loaded are added to ``loaded``.

    At the end of the stream, a LayerScale that no call has ever loaded is set to
    ``config.initializer_factor``, as vLLM's constructor does: that is what a checkpoint without
    LayerScale (C-RADIO's are folded into the weights) means, while the memory holds what
    ``load_format="dummy"`` or a level-2 sleep left in it. A value that was set this way is not
    remembered as loaded: a real one may follow, and the next wake-up needs it set again.

    Upstream: vllm-project/vllm#39767 (closed) reports the loss; NVIDIA-NeMo/RL patches it.
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
