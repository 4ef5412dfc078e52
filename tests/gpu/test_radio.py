"""The RADIO scenarios on a CUDA device: weights stay live there, attention has other kernels."""

from __future__ import annotations

import pytest

from tests.patches.radio import shared

PROBE = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"

# Attention and matrix products on CUDA round differently from transformers'; features are of scale
# 2 to 6, and a parameter that was loaded wrongly shows as more than 1.
TOLERANCE = {"float32": 0.05, "bfloat16": 0.3}


@pytest.fixture(autouse=True)
def cuda(vllm_env):
    import subprocess

    probe = subprocess.run([vllm_env.python, "-c", PROBE], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"torch of the {vllm_env.release} environment finds no CUDA device")


@pytest.mark.parametrize("dtype", shared.DTYPES)
@pytest.mark.parametrize("fmt", shared.FORMATS)
def test_the_tower_is_transformers_in_every_format(vllm_env, fmt, dtype):
    judged = shared.tower(vllm_env, overlay=True, device="cuda")["formats"][f"{dtype} {fmt}"]
    assert judged["right"] == shared.PARAMETERS
    assert shared.difference(judged["features"]) < TOLERANCE[dtype]
    stock = shared.tower(vllm_env, overlay=False, device="cuda")["formats"][f"{dtype} {fmt}"]
    assert stock["right"] < shared.PARAMETERS
    assert shared.least_difference(stock["features"]) > shared.WRONG


def test_scales_and_the_engines_own_refit(vllm_env):
    result = shared.tower(vllm_env, overlay=True, device="cuda")
    for part in ("scales", "layerwise"):
        for case, judged in result[part].items():
            if case != "nothing offered":
                assert judged["right"] == shared.PARAMETERS, case
                assert shared.difference(judged["features"]) < TOLERANCE["float32"], case


@pytest.mark.parametrize("step", shared.STEPS)
def test_an_engine_is_refitted_step_after_step(vllm_env, step):
    overlay = shared.engine(vllm_env, overlay=True, device="cuda")[step]
    assert shared.difference(overlay["features"]) < TOLERANCE["bfloat16"]
    stock = shared.engine(vllm_env, overlay=False, device="cuda")[step]
    assert shared.least_difference(stock["features"]) > shared.WRONG
