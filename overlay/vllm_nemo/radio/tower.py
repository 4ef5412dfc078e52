"""What stands in front of the loop in ``RadioModel.load_weights``.

Each function is a generator over the stream of weights: it takes what it understands and passes on
the rest, so that vLLM's own loop stays as it is. ``load_weights`` is called once a batch of a
refit; what a later batch must know is kept on the module, as plain attributes, outside of its
state dict.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vllm_nemo.radio import names, pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import nn

    Weights = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]

_SCALES = ("ls1", "ls2")
_ARRIVED = "_nemo_layer_scales"
_REPORTED = "_nemo_reported_names"

# A child of vLLM's logger, for its handlers.
_logger = logging.getLogger("vllm.nemo.radio")


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
    for name, weight in pairs(weights):
        target = names.layer_scale(name)
        if target is None or target[0] >= len(layers):
            yield name, weight
            continue
        index, scale = target
        layer = layers[index]
        pieces.load(layer, scale, weight)
        arrived.setdefault(index, set()).add(scale)
        pieces.hand_over(layer, arrived[index])
        loaded.add(f"model.encoder.layers.{index}.{scale}")
    factor = tower.config.initializer_factor
    for index, layer in enumerate(layers):
        for scale in _SCALES:
            if scale not in arrived.get(index, ()):
                pieces.fill(layer, scale, factor)


def translate_tower(
    tower: nn.Module, weights: Weights, loaded: set[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give each weight the name that vLLM's loop knows, whatever format it comes in.

    Split attention weights ``(hidden, hidden)`` or ``(hidden,)`` have no such name: they are loaded
    here, as shards of the fused parameter, through its weight loader; the parameter's name is added
    to ``loaded``. They may come in any order and in different calls.

    A name of the tower's that fits no parameter is left out, as vLLM does, but reported: one
    warning with all of them, and once for each name.
    """
    parameters = {name for name, _ in tower.named_parameters()}
    unmatched = []
    for name, weight in pairs(weights):
        target = names.resolve(name)
        if target is None or target.parameter not in parameters:
            if names.is_expected(name) and not _is_cut_off(tower, name):
                unmatched.append(name)
            continue
        # Looked up anew each time: vLLM's own refit replaces parameters as it goes.
        owner, _, leaf = target.parameter.rpartition(".")
        module = tower.get_submodule(owner)
        pieces.free(module, leaf)
        if target.shard is None:
            yield names.legacy(target.parameter), weight
        else:
            parameter = getattr(module, leaf)
            parameter.weight_loader(parameter, weight, target.shard)
            loaded.add(target.parameter)
    report(tower, unmatched, "RADIO vision tower")


def _is_cut_off(tower: nn.Module, name: str) -> bool:
    """Tell whether a name is of a layer that the model was made without on purpose."""
    index = names.layer_index(name)
    depth = len(tower.model.encoder.layers)
    return index is not None and depth <= index < tower.config.num_hidden_layers


def pairs(weights: Weights) -> Iterable[tuple[str, torch.Tensor]]:
    """Iterate over a stream of weights, or over a state dict."""
    return weights.items() if isinstance(weights, Mapping) else weights


def report(module: nn.Module, unmatched: Iterable[str], part: str) -> None:
    """Warn about weights that went nowhere; names that were in an earlier warning are left out."""
    reported: set[str] = module.__dict__.setdefault(_REPORTED, set())
    new = sorted(set(unmatched) - reported)
    if not new:
        return
    reported.update(new)
    _logger.warning(
        "%d weights for the %s match none of its parameters and were not loaded, so what they "
        "stand for is stale (patch radio-native-names; docs/radio.md lists the names that are "
        "known): %s",
        len(new),
        part,
        ", ".join(new),
    )
