"""RADIO's table of names: what is in none of the formats."""

from __future__ import annotations

from vllm_nemo.patches.shared import radio_names


def test_names_outside_of_the_formats():
    assert radio_names.resolve("language_model.model.layers.0.mlp.weight") is None
    assert radio_names.resolve("radio_model.model.norm.weight") is None
    assert radio_names.layer_scale("encoder.layer.0.layer_scale3.lambda1") is None
    assert radio_names.final_layernorm("vision_final_layernorm2.weight") is None
