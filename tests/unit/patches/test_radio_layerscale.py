"""Patch ``radio-layerscale``: which scales are loaded and which are filled, on a fake tower."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_nemo.patches.radio_layerscale import load_layer_scales

from tests.unit.patches.fake_tower import COMPLETE, PIECES, Tower, streams

pytestmark = pytest.mark.usefixtures("no_layerwise_refit")


@given(streams(), st.sets(st.sampled_from([p for p in PIECES if ".ls" in p[0]])))
def test_a_scale_that_was_never_offered_is_filled_and_no_other(batches, missing):
    tower = Tower()
    for batch in batches:
        tower.load_weights([pair for pair in batch if pair[1] not in missing])
        for name, held in tower.held().items():
            if ".ls" in name:  # at the end of every call, a scale is its own or filled
                assert held[None] in ((name, None), ("filled", 0.5))
    expected = dict(COMPLETE) | {name: {None: ("filled", 0.5)} for name, _ in missing}
    assert tower.held() == expected


def test_a_real_scale_follows_a_filled_one_and_stays():
    tower = Tower()
    scale = tower.parameters["model.encoder.layers.1.ls2"]
    tower.load_weights([])
    assert scale.held == {None: ("filled", 0.5)}
    tower.load_weights([("encoder.layer.1.layer_scale2.lambda1", "real")])
    tower.load_weights([])
    assert scale.held == {None: "real"}
    filled = tower.parameters["model.encoder.layers.1.ls1"]
    filled.held = {None: "what a level-2 sleep leaves"}
    tower.load_weights([])
    assert filled.held == {None: ("filled", 0.5)}
    assert scale.held == {None: "real"}


def test_scales_are_loaded_without_the_other_patch_and_the_rest_passes():
    tower = Tower()
    loaded = set()
    given = {"encoder.layer.0.layer_scale1.lambda1": 1, "encoder.layer.0.norm1.bias": 2, "other": 3}
    rest = list(load_layer_scales(tower, given, loaded))
    assert rest == [("encoder.layer.0.norm1.bias", 2), ("other", 3)]
    assert loaded == {"model.encoder.layers.0.ls1"}
