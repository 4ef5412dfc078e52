"""The RADIO scenarios on a GPU, where weights stay live and attention has other kernels."""

from __future__ import annotations

import pytest

from tests.support.radio import scenarios

# Attention and matrix products on CUDA round differently from transformers'. Features are of scale
# 2 to 6, and a wrong parameter makes more than 1.
TOLERANCE = {"float32": 0.05, "bfloat16": 0.3}


@pytest.mark.parametrize("dtype", scenarios.DTYPES)
@pytest.mark.parametrize("fmt", scenarios.FORMATS)
def test_the_tower_is_transformers_in_every_format(gpu_env, fmt, dtype):
    judged = scenarios.tower(gpu_env, overlay=True, device="cuda")["formats"][f"{dtype} {fmt}"]
    assert judged["right"] == scenarios.PARAMETERS
    assert scenarios.difference(judged["features"]) < TOLERANCE[dtype]
    stock = scenarios.tower(gpu_env, overlay=False, device="cuda")["formats"][f"{dtype} {fmt}"]
    assert stock["right"] < scenarios.PARAMETERS
    assert scenarios.least_difference(stock["features"]) > scenarios.WRONG


def test_scales_and_the_engines_own_refit(gpu_env):
    result = scenarios.tower(gpu_env, overlay=True, device="cuda")
    for part in ("scales", "layerwise"):
        for case, judged in result[part].items():
            if case != "nothing offered":
                assert judged["right"] == scenarios.PARAMETERS, case
                assert scenarios.difference(judged["features"]) < TOLERANCE["float32"], case


@pytest.mark.parametrize("step", scenarios.STEPS)
def test_an_engine_is_refitted_step_after_step(gpu_env, step):
    overlay = scenarios.engine(gpu_env, overlay=True, device="cuda")[step]
    assert scenarios.difference(overlay["features"]) < TOLERANCE["bfloat16"]
    stock = scenarios.engine(gpu_env, overlay=False, device="cuda")[step]
    assert scenarios.least_difference(stock["features"]) > scenarios.WRONG
