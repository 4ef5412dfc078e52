"""Patch ``radio-final-layernorm``: whose weights are loaded, on a fake model."""

from __future__ import annotations

import pytest
from vllm_nemo.patches import radio_final_layernorm

from tests.unit.patches.fake_tower import Module, Parameter

pytestmark = pytest.mark.usefixtures("no_layerwise_refit")


def norm_model(norm):
    return Module(vision_final_layernorm=norm, _nemo_final_layernorm=set())


def test_the_final_norm_takes_both_prefixes_and_leaves_the_rest():
    norm = Module(weight=Parameter(), bias=Parameter())
    model = norm_model(norm)
    given = [
        ("vision_projector.vision_final_layernorm.weight", 1),
        ("mlp1.0.weight", 2),
        ("vision_final_layernorm.bias", 3),
    ]
    assert list(radio_final_layernorm.load(model, given, multimodal=True)) == [("mlp1.0.weight", 2)]
    assert (norm.weight.held, norm.bias.held) == ({None: 1}, {None: 3})
    assert model._nemo_final_layernorm == {"weight", "bias"}


def test_the_final_norm_is_skipped_where_there_are_no_images():
    model = norm_model(None)
    given = [("vision_final_layernorm.weight", 1), ("language_model.x", 2)]
    assert list(radio_final_layernorm.load(model, given, multimodal=False)) == [
        ("language_model.x", 2)
    ]
    assert model._nemo_final_layernorm == set()


def test_a_final_norm_that_was_not_constructed_is_an_error():
    with pytest.raises(ValueError, match=r"without a final vision.*num_nextn_predict_layers"):
        list(
            radio_final_layernorm.load(
                norm_model(None), [("vision_final_layernorm.bias", 1)], multimodal=True
            )
        )
    norm = norm_model(Module(weight=Parameter(), bias=Parameter()))
    with pytest.raises(ValueError, match=r"'weight' and 'bias'"):
        list(
            radio_final_layernorm.load(norm, [("vision_final_layernorm.scale", 1)], multimodal=True)
        )
