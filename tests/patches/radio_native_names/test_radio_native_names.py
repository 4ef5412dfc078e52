"""Patch ``radio-native-names``: vision weights arrive under the names of every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.patches.radio import shared

# How many of the 32 parameters stock vLLM loads; the rest keeps what it had, without a word.
STOCK = {"legacy": 28, "remote": 0, "transformers": 0, "hybrid": 24}


@pytest.mark.parametrize("dtype", shared.DTYPES)
@pytest.mark.parametrize("fmt", shared.FORMATS)
def test_the_tower_is_transformers_in_every_format(vllm_env, fmt, dtype):
    judged = shared.tower(vllm_env, overlay=True)["formats"][f"{dtype} {fmt}"]
    assert judged["batches"] >= 14
    assert judged["loaded"] == judged["right"] == shared.PARAMETERS
    assert shared.same(judged), judged["features"]
    assert judged["keys unchanged"]
    assert judged["warnings"] == []


@pytest.mark.parametrize("dtype", shared.DTYPES)
@pytest.mark.parametrize("fmt", shared.FORMATS)
def test_stock_drops_what_it_does_not_know(vllm_env, fmt, dtype):
    judged = shared.tower(vllm_env, overlay=False)["formats"][f"{dtype} {fmt}"]
    assert judged["loaded"] == judged["right"] == STOCK[fmt]
    assert shared.least_difference(judged["features"]) > shared.WRONG


@pytest.mark.parametrize("fmt", shared.FORMATS)
@pytest.mark.parametrize("again", ["", ", again, reversed"])
def test_the_engines_own_refit_takes_every_format(vllm_env, fmt, again):
    judged = shared.tower(vllm_env, overlay=True)["layerwise"][fmt + again]
    assert judged["right"] == shared.PARAMETERS
    assert shared.same(judged), judged["features"]
    stock = shared.tower(vllm_env, overlay=False)["layerwise"][fmt + again]
    assert stock["right"] == STOCK[fmt]


MIXED = ("after direct calls", "before direct calls", "direct calls after a partial one")


@pytest.mark.parametrize("case", MIXED)
def test_both_ways_of_refitting_follow_each_other(vllm_env, case):
    judged = shared.tower(vllm_env, overlay=True)["layerwise"][case]
    assert judged["right"] == shared.PARAMETERS
    assert shared.same(judged), judged["features"]


def test_a_name_that_fits_nothing_is_reported_once(vllm_env):
    result = shared.tower(vllm_env, overlay=True)["names"]
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
    stock = shared.tower(vllm_env, overlay=False)["names"]
    assert stock["warnings"] == stock["another tower"] == []


def test_details_of_loading(vllm_env):
    result = shared.tower(vllm_env, overlay=True)["names"]
    assert result["hf_model"]["right"] == shared.PARAMETERS
    assert result["query alone"]
    assert result["3-D token"] == "refused"


@pytest.mark.parametrize("step", shared.STEPS)
def test_an_engine_is_refitted_step_after_step(vllm_env, step):
    """Tower, projector and final norm, in both ways, with weights that differ from step to step."""
    overlay = shared.engine(vllm_env, overlay=True)[step]
    assert overlay["batches"] >= 20 or step.startswith("reload")
    assert shared.difference(overlay["shuffled"]) == 0
    assert shared.difference(overlay["features"]) < shared.ROUNDING
    assert overlay["warnings"] == []
    stock = shared.engine(vllm_env, overlay=False)[step]
    assert shared.least_difference(stock["features"]) > shared.WRONG


def test_a_partial_refit_keeps_the_rest(vllm_env):
    overlay = shared.engine(vllm_env, overlay=True)["direct, partial"]
    assert shared.difference(overlay["shuffled"]) == 0
    assert shared.difference(overlay["features"]) < shared.ROUNDING


def test_the_engine_answers_an_image_prompt(vllm_env):
    assert shared.engine(vllm_env, overlay=True)["generated"] == 3


def test_a_flat_vision_config_is_understood_or_refused_with_advice(vllm_env):
    overlay = shared.engine(vllm_env, overlay=True)["others"]
    assert shared.difference(overlay["flat"]) == 0
    assert overlay["flat, lacking"].startswith("ValueError: ")
    assert "lacks what vLLM's Nemotron VL reads: template. Add these" in overlay["flat, lacking"]
    stock = shared.engine(vllm_env, overlay=False)["others"]
    assert stock["flat"].startswith("AttributeError: ")
    assert "'args'" in stock["flat"]


def test_two_ranks_hold_their_shards(vllm_env):
    ranks = vllm_env.scenario(shared.RANKS, overlay=True, device="cpu").ok()
    assert len(ranks) == 2
    for rank in ranks:
        assert rank.keys() == {
            f"{way} {fmt}" for way in ("direct", "layerwise") for fmt in shared.FORMATS
        }
        for judged in rank.values():
            assert judged["right"] == judged["of"] == shared.PARAMETERS
            assert judged["qkv"] == [576, 384]
            # The ranks' partial sums are added in another order than one matrix product's.
            assert judged["difference"] < 1e-4


def test_random_streams_give_the_same_tower(vllm_env):
    result = shared.tower(vllm_env, overlay=True)["random"]
    streams = json.loads(Path(shared.random_streams()).read_text())
    assert result["streams"] == len(streams) >= 20
    assert not result["wrong"], streams[result["wrong"][0]]
