"""Renames the weights that ``RadioModel`` and ``NemotronH_Nano_VL_V2`` are about to load.

Each function is a generator over the stream of weights. It passes them on under the names that the
loop in vLLM's ``load_weights`` knows. A refit calls ``load_weights`` once a batch. What a later
batch must know is kept on the module, as a plain attribute outside of its state dict.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vllm_nemo.patches.shared import radio_names as names
from vllm_nemo.patches.shared import refit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import nn

    from vllm_nemo.patches.shared.radio_names import Weights

_TOWER = "vision_model."
_REPORTED = "_nemo_reported_names"

# A child of vLLM's logger, for its handlers.
_logger = logging.getLogger("vllm.nemo.radio_native_names")


def translate_tower(
    tower: nn.Module, weights: Weights, loaded: set[str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give each weight of the tower the name that vLLM's loop knows.

    Split attention weights have no such name. They are loaded here, as shards of the fused
    parameter, through its weight loader. They may come in any order and in different calls.

    A name of the tower's that fits no parameter is dropped, as vLLM does. But one warning lists
    all such names, and no name is in two warnings.

    Args:
        tower: vLLM's ``RadioModel``.
        weights: Names in any format of ``radio_names``, and tensors. Split attention weights have
            the shapes (hidden, hidden) and (hidden,).
        loaded: The names of loaded parameters; the function adds those that it loads.

    Yields:
        Every other weight of the tower, renamed.
    """
    parameters = {name for name, _ in tower.named_parameters()}
    unmatched = []
    for name, weight in names.pairs(weights):
        target = names.resolve(name)
        if target is None or target.parameter not in parameters:
            if names.is_expected(name) and not _is_cut_off(tower, name):
                unmatched.append(name)
            continue
        # Looked up again for each weight: vLLM's own refit replaces parameters as it goes.
        owner, _, leaf = target.parameter.rpartition(".")
        module = tower.get_submodule(owner)
        refit.free(module, leaf)
        if target.shard is None:
            yield names.legacy(target.parameter), weight
        else:
            parameter = getattr(module, leaf)
            parameter.weight_loader(parameter, weight, target.shard)
            loaded.add(target.parameter)
    _report(tower, unmatched, "RADIO vision tower")


def _is_cut_off(tower: nn.Module, name: str) -> bool:
    """Tell whether a name belongs to a layer that the model was built without on purpose."""
    index = names.layer_index(name)
    depth = len(tower.model.encoder.layers)
    return index is not None and depth <= index < tower.config.num_hidden_layers


def translate_model(
    model: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Rename vision weights so that vLLM's filters let them through to tower and projector.

    - All of ``vision_model.*`` goes to the tower, where ``translate_tower`` decides.
    - ``vision_projector.mlp1.*`` and ``multi_modal_projector.*`` become ``mlp1.*``.

    Args:
        model: The whole model; it remembers which names were reported.
        weights: Names and tensors.

    Yields:
        The names and tensors for vLLM's loop. A projector weight that fits none of its layers is
        dropped, and reported once.
    """
    unmatched = []
    for name, weight in weights:
        if name.startswith(_TOWER) and not name.startswith(_TOWER + names.LEGACY_PREFIX):
            yield _TOWER + names.LEGACY_PREFIX + name[len(_TOWER) :], weight
            continue
        renamed = names.projector(name)
        if renamed is None:
            yield name, weight
        elif renamed:
            yield renamed, weight
        else:
            unmatched.append(name)
    _report(model, unmatched, "vision projector")


def _report(module: nn.Module, unmatched: Iterable[str], part: str) -> None:
    """Warn about weights that went nowhere; names that were in an earlier warning are left out."""
    reported: set[str] = module.__dict__.setdefault(_REPORTED, set())
    new = sorted(set(unmatched) - reported)
    if not new:
        return
    reported.update(new)
    _logger.warning(
        "%d weights for the %s match none of its parameters and were not loaded; what they stand "
        "for keeps its old values (patch radio-native-names; docs/radio.md lists known names): %s",
        len(new),
        part,
        ", ".join(new),
    )
