"""Patch ``radio-layerscale``: a refitted tower scales its residuals as transformers' does."""

from __future__ import annotations

import pytest

from tests.support.radio import scenarios

CASES = (
    "ls1",
    "ls1.grandma",
    "ls1.gamma",
    "ls1.lambda1",
    "first",
    "last",
    "as a dict",
    "folded, factor 1.0",
    "folded, factor 1.0, awake again",
    "folded, factor 0.5",
    "folded, factor 0.5, awake again",
    "partial",
    "only ls1",
)
LAYERWISE = ("legacy", "legacy, again, reversed", "folded", "only ls1", "then ls2")


@pytest.mark.sources
@pytest.mark.parametrize("case", CASES)
def test_scales_are_loaded_or_filled(vllm_env, case):
    judged = scenarios.tower(vllm_env, overlay=True)["scales"][case]
    assert judged["right"] == scenarios.PARAMETERS
    assert scenarios.same(judged), judged["features"]
    assert judged["warnings"] == []


@pytest.mark.sources
@pytest.mark.parametrize("case", CASES)
def test_stock_multiplies_residuals_by_noise(vllm_env, case):
    judged = scenarios.tower(vllm_env, overlay=False)["scales"][case]
    assert judged["right"] == scenarios.PARAMETERS - 4  # ls1 and ls2 of two layers
    assert scenarios.least_difference(judged["features"]) > scenarios.WRONG


@pytest.mark.sources
def test_an_empty_batch_fills_and_tells_of_nothing_loaded(vllm_env):
    overlay = scenarios.tower(vllm_env, overlay=True)["scales"]["nothing offered"]
    assert overlay == {"loaded": [], "values": [1.0, 1.0]}
    stock = scenarios.tower(vllm_env, overlay=False)["scales"]["nothing offered"]
    assert stock["loaded"] == []
    low, high = stock["values"]
    assert -1e-3 <= low < high <= 1e-3  # what a dummy start draws from


@pytest.mark.sources
@pytest.mark.parametrize("case", LAYERWISE)
def test_scales_survive_the_engines_own_refit(vllm_env, case):
    judged = scenarios.tower(vllm_env, overlay=True)["layerwise"][case]
    assert judged["right"] == scenarios.PARAMETERS
    assert scenarios.same(judged), judged["features"]


@pytest.mark.sources
@pytest.mark.parametrize("case", LAYERWISE)
def test_stock_loses_scales_in_its_own_refit(vllm_env, case):
    judged = scenarios.tower(vllm_env, overlay=False)["layerwise"][case]
    assert judged["right"] == scenarios.PARAMETERS - 4
    assert scenarios.least_difference(judged["features"]) > scenarios.WRONG


@pytest.mark.parametrize("case", ["transfer folded", "direct folded"])
def test_an_engine_computes_with_identity_scales_for_a_folded_model(vllm_env, case):
    overlay = scenarios.engine(vllm_env, overlay=True)[case]
    assert overlay["batches"] >= 20
    assert scenarios.difference(overlay["shuffled"]) == 0
    assert scenarios.difference(overlay["features"]) < scenarios.ROUNDING
    stock = scenarios.engine(vllm_env, overlay=False)[case]
    assert scenarios.least_difference(stock["shuffled"]) > scenarios.WRONG
