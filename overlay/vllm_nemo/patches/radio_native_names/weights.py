"""What stands in front of the loops in ``RadioModel`` and ``NemotronH_Nano_VL_V2.load_weights``.

Each function is a generator over the stream of weights: it takes what it understands and passes on
the rest under names that vLLM's own loop knows. ``load_weights`` is called once a batch of a
refit; what a later batch must know is kept on the module, as a plain attribute, outside of its
state dict.
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
_logger = logging.getLogger("vllm.nemo.radio")


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
    for name, weight in names.pairs(weights):
        target = names.resolve(name)
        if target is None or target.parameter not in parameters:
            if names.is_expected(name) and not _is_cut_off(tower, name):
                unmatched.append(name)
            continue
        # Looked up anew each time: vLLM's own refit replaces parameters as it goes.
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
    """Tell whether a name is of a layer that the model was made without on purpose."""
    index = names.layer_index(name)
    depth = len(tower.model.encoder.layers)
    return index is not None and depth <= index < tower.config.num_hidden_layers


def translate_model(
    model: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Rename vision weights so that vLLM's filters let them through to the tower and projector.

    - ``vision_model.*`` all goes to the tower, whose own loader decides (``translate_tower``)
    - ``vision_projector.mlp1.*`` and ``multi_modal_projector.*`` become ``mlp1.*``

    A projector weight that fits none of its layers is reported once.
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
        "%d weights for the %s match none of its parameters and were not loaded, so what they "
        "stand for is stale (patch radio-native-names; docs/radio.md lists the names that are "
        "known): %s",
        len(new),
        part,
        ", ".join(new),
    )
