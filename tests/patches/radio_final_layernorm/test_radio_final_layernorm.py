"""Patch ``radio-final-layernorm``: models with MTP layers normalise the tower's features."""

from __future__ import annotations

import pytest

from tests.support.radio import scenarios

KINDS = {*scenarios.KINDS}
LARGE = KINDS | {"many images", "many frames"}  # more than vLLM takes at a time


def has_norm(vllm_env):
    """Tell whether stock vLLM has a norm of its own, which it got in 0.32.0."""
    return vllm_env.at_least("0.32.0")


@pytest.mark.parametrize("case", ["direct, no norm", "direct, norm's weight"])
def test_the_norm_is_off_until_both_of_its_weights_came(vllm_env, case):
    judged = scenarios.engine(vllm_env, overlay=True)[case]
    assert scenarios.difference(judged["shuffled"]) == 0
    assert scenarios.difference(judged["features"]) < scenarios.ROUNDING


def test_the_norm_is_on_once_they_have(vllm_env):
    judged = scenarios.engine(vllm_env, overlay=True)["direct, norm's bias"]
    assert judged["shuffled"].keys() == KINDS
    assert scenarios.difference(judged["shuffled"]) == 0
    assert scenarios.difference(judged["features"]) < scenarios.ROUNDING


@pytest.mark.parametrize("step", ["direct legacy", "transfer remote"])
def test_images_video_and_more_frames_than_fit_a_micro_batch(vllm_env, step):
    judged = scenarios.engine(vllm_env, overlay=True)[step]
    assert judged["shuffled"].keys() == LARGE
    assert scenarios.difference(judged["shuffled"]) == 0


def test_a_refit_of_one_weight_in_the_engines_own_way_keeps_the_other(vllm_env):
    judged = scenarios.engine(vllm_env, overlay=True)["transfer, norm's bias"]
    assert scenarios.difference(judged["shuffled"]) == 0


def test_the_norm_stays_in_fp32_and_outside_of_no_list(vllm_env):
    result = scenarios.engine(vllm_env, overlay=True)
    assert result["norm"] == {"dtype": "torch.float32", "right": True}
    assert result["keys"] == ["vision_final_layernorm.weight", "vision_final_layernorm.bias"]
    parts = {"mlp1", "vision_final_layernorm", "sound_encoder.projection"}
    assert set(result["connector"]) == parts
    assert len(result["connector"]) == len(parts)


def test_stock_has_no_norm_or_one_that_rounds(vllm_env):
    """With the other patches' defects set right by hand, stock's features are those without it.

    Since 0.32.0 they are nearly those with it: its weights are rounded to the model's dtype.
    """
    stock = scenarios.engine(vllm_env, overlay=False)
    with_norm, without = (stock[f"only the norm's defect, norm={norm}"] for norm in (True, False))
    if has_norm(vllm_env):
        assert scenarios.least_difference(without["shuffled"]) > scenarios.WRONG
        assert scenarios.difference(with_norm["shuffled"]) > 0
        assert stock["norm"] == {"dtype": "torch.bfloat16", "right": False}
    else:
        assert scenarios.difference(without["shuffled"]) == 0
        assert scenarios.least_difference(with_norm["shuffled"]) > scenarios.WRONG
        assert stock["norm"] is None
    overlay = scenarios.engine(vllm_env, overlay=True)
    with_norm, without = (overlay[f"only the norm's defect, norm={norm}"] for norm in (True, False))
    assert scenarios.difference(with_norm["shuffled"]) == 0
    assert scenarios.least_difference(without["shuffled"]) > scenarios.WRONG


def test_a_model_without_mtp_layers_has_none_and_refuses_its_weights(vllm_env):
    result = scenarios.engine(vllm_env, overlay=True)["others"]
    assert result["no MTP: module"] is True
    assert result["no MTP: norm offered"].startswith("ValueError: ")
    assert "without a final vision LayerNorm" in result["no MTP: norm offered"]
    assert scenarios.difference(result["no MTP: shuffled"]) == 0
    stock = scenarios.engine(vllm_env, overlay=False)["others"]
    if has_norm(vllm_env):
        assert stock["no MTP: norm offered"].startswith("AssertionError: ")
    else:
        assert stock["no MTP: norm offered"] is None  # dropped


def test_a_text_only_engine_skips_vision_weights(vllm_env):
    assert scenarios.engine(vllm_env, overlay=True)["others"]["text only"] is None
