"""Patch ``radio-native-names``: vision weights arrive under the names of every format."""

from __future__ import annotations

import pytest

from tests.support.radio import scenarios

# How many of the 32 parameters stock vLLM loads. The rest keeps its values, without a warning.
STOCK = {"legacy": 28, "remote": 0, "transformers": 0, "hybrid": 24}


@pytest.mark.sources
@pytest.mark.parametrize("dtype", scenarios.DTYPES)
@pytest.mark.parametrize("fmt", scenarios.FORMATS)
def test_the_tower_is_transformers_in_every_format(vllm_env, fmt, dtype):
    judged = scenarios.tower(vllm_env, overlay=True)["formats"][f"{dtype} {fmt}"]
    assert judged["batches"] >= 14
    assert judged["loaded"] == judged["right"] == scenarios.PARAMETERS
    assert scenarios.same(judged), judged["features"]
    assert judged["keys unchanged"]
    assert judged["warnings"] == []


@pytest.mark.sources
@pytest.mark.parametrize("dtype", scenarios.DTYPES)
@pytest.mark.parametrize("fmt", scenarios.FORMATS)
def test_stock_drops_what_it_does_not_know(vllm_env, fmt, dtype):
    judged = scenarios.tower(vllm_env, overlay=False)["formats"][f"{dtype} {fmt}"]
    assert judged["loaded"] == judged["right"] == STOCK[fmt]
    assert scenarios.least_difference(judged["features"]) > scenarios.WRONG


@pytest.mark.sources
@pytest.mark.parametrize("fmt", scenarios.FORMATS)
@pytest.mark.parametrize("again", ["", ", again, reversed"])
def test_the_engines_own_refit_takes_every_format(vllm_env, fmt, again):
    judged = scenarios.tower(vllm_env, overlay=True)["layerwise"][fmt + again]
    assert judged["right"] == scenarios.PARAMETERS
    assert scenarios.same(judged), judged["features"]
    stock = scenarios.tower(vllm_env, overlay=False)["layerwise"][fmt + again]
    assert stock["right"] == STOCK[fmt]


MIXED = ("after direct calls", "before direct calls", "direct calls after a partial one")


@pytest.mark.sources
@pytest.mark.parametrize("case", MIXED)
def test_both_ways_of_refitting_follow_each_other(vllm_env, case):
    judged = scenarios.tower(vllm_env, overlay=True)["layerwise"][case]
    assert judged["right"] == scenarios.PARAMETERS
    assert scenarios.same(judged), judged["features"]


def test_a_name_that_fits_nothing_is_reported_once(vllm_env):
    result = scenarios.tower(vllm_env, overlay=True)["names"]
    first, second = result["warnings"]
    assert result["loaded"] == []
    assert first.startswith("2 weights for the RADIO vision tower")
    assert first.endswith(
        ": encoder.layer.1.attention.query.weight, radio_model.model.blocks.0.attn.qkv.weight_scale"
    )
    assert second.startswith("3 weights for the RADIO vision tower")
    assert second.endswith(
        ": embeddings.mask_token, encoder.layer.12.norm1.weight, radio_model.model.norm.weight"
    )
    assert len(result["another tower"]) == 1
    stock = scenarios.tower(vllm_env, overlay=False)["names"]
    assert stock["warnings"] == stock["another tower"] == []


def test_details_of_loading(vllm_env):
    result = scenarios.tower(vllm_env, overlay=True)["names"]
    assert result["hf_model"]["right"] == scenarios.PARAMETERS
    assert result["query alone"]
    assert result["3-D token"] == "refused"


@pytest.mark.parametrize("step", scenarios.STEPS)
def test_an_engine_is_refitted_step_after_step(vllm_env, step):
    """Tower, projector and final norm, in both ways, with weights that differ from step to step."""
    overlay = scenarios.engine(vllm_env, overlay=True)[step]
    assert overlay["batches"] >= 20 or step.startswith("reload")
    assert scenarios.difference(overlay["shuffled"]) == 0
    assert scenarios.difference(overlay["features"]) < scenarios.ROUNDING
    assert overlay["warnings"] == []
    stock = scenarios.engine(vllm_env, overlay=False)[step]
    assert scenarios.least_difference(stock["features"]) > scenarios.WRONG


def test_a_partial_refit_keeps_the_rest(vllm_env):
    overlay = scenarios.engine(vllm_env, overlay=True)["direct, partial"]
    assert scenarios.difference(overlay["shuffled"]) == 0
    assert scenarios.difference(overlay["features"]) < scenarios.ROUNDING


def test_the_engine_answers_an_image_prompt(vllm_env):
    assert scenarios.engine(vllm_env, overlay=True)["generated"] == 3


def test_a_flat_vision_config_is_understood_or_refused_with_advice(vllm_env):
    overlay = scenarios.engine(vllm_env, overlay=True)["others"]
    assert scenarios.difference(overlay["flat"]) == 0
    assert overlay["flat, lacking"].startswith("ValueError: ")
    assert "lacks what vLLM's Nemotron VL reads: template. Add them" in overlay["flat, lacking"]
    stock = scenarios.engine(vllm_env, overlay=False)["others"]
    assert stock["flat"].startswith("AttributeError: ")
    assert "'args'" in stock["flat"]


def test_two_ranks_hold_their_shards(vllm_env):
    ranks = vllm_env.scenario(scenarios.RANKS, overlay=True, device="cpu").ok()
    assert len(ranks) == 2
    for rank in ranks:
        assert rank.keys() == {
            f"{way} {fmt}" for way in ("direct", "layerwise") for fmt in scenarios.FORMATS
        }
        for judged in rank.values():
            assert judged["right"] == judged["of"] == scenarios.PARAMETERS
            assert judged["qkv"] == [576, 384]
            # The ranks' partial sums are added in another order than in one matrix product.
            assert judged["difference"] < 1e-4
