"""The fp32 LM head on a GPU: the scenarios of the CPU tests with device="cuda"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fp32_lm_head.scenarios import BF16, FP32, engine, heads, memory

if TYPE_CHECKING:
    from tests.support.environment import Environment

# Larger than on a CPU: a GPU splits and orders the sums in another way.
FP32_ERROR = 1e-5
LEFT_OUT = "left_out_of_quantization"


def test_the_head_is_exact(gpu_env: Environment) -> None:
    cases = heads(gpu_env, overlay=True, on=True, device="cuda")["cases"]
    stock = heads(gpu_env, overlay=False, on=True, device="cuda")["cases"]
    for name, result in cases.items():
        assert result.get("error") is None, (name, result)
        assert result["dtype"] == FP32
        assert result["logprobs"]["mean"] < FP32_ERROR, name
    assert cases[LEFT_OUT]["method"] == "UnquantizedLinearMethod"
    assert stock["untied"]["dtype"] == BF16
    assert stock["untied"]["logprobs"]["mean"] > 100 * FP32_ERROR


def test_off_is_stock_to_the_bit(gpu_env: Environment) -> None:
    off = heads(gpu_env, overlay=True, on=False, device="cuda")["cases"]
    assert off == heads(gpu_env, overlay=False, on=True, device="cuda")["cases"]


def test_no_fp32_copy_of_the_weight(gpu_env: Environment) -> None:
    result = memory(gpu_env, vocabulary=131072, hidden=4096, rows=64)
    assert result["dtype"] == FP32
    assert result["logits"]["mean"] < FP32_ERROR * 10  # sums of 4096 products
    assert result["beside_logits"] < result["fp32_copy"] / 4


@pytest.mark.parametrize("on", [True, False])
def test_an_engine_with_cuda_graphs(gpu_env: Environment, *, on: bool) -> None:
    result = engine(gpu_env, overlay=True, on=on, device="cuda", enforce_eager=False).ok()
    assert result["head"]["dtype"] == (FP32 if on else BF16)
    for what in ("distribution", "sampled", "prompt"):
        assert (result[what]["mean"] < FP32_ERROR) is on, what
