"""The fp32 LM head on a GPU: the scenarios of ``tests/patches/fp32_lm_head`` with device="cuda"."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIOS = Path(__file__).parent.parent / "patches" / "fp32_lm_head"
ON = {"NRL_VLLM_FP32_LM_HEAD": "1"}
FP32, BF16 = "torch.float32", "torch.bfloat16"
# Split-K and the order of sums differ from a CPU's, and fp32 log-softmax rounds: see the CPU tests.
FP32_ERROR = 1e-5
LEFT_OUT = "left_out_of_quantization"


def heads(environment: Environment, *, overlay: bool, on: bool):
    outcome = environment.scenario(
        SCENARIOS / "heads.py", overlay=overlay, env=ON if on else {}, device="cuda"
    )
    return outcome.ok()


def test_the_head_is_exact(gpu_env: Environment) -> None:
    cases = heads(gpu_env, overlay=True, on=True)["cases"]
    stock = heads(gpu_env, overlay=False, on=True)["cases"]
    for name, result in cases.items():
        assert result.get("error") is None, (name, result)
        assert result["dtype"] == FP32
        assert result["logprobs"]["mean"] < FP32_ERROR, name
    assert cases[LEFT_OUT]["method"] == "UnquantizedLinearMethod"
    assert stock["untied"]["dtype"] == BF16
    assert stock["untied"]["logprobs"]["mean"] > 100 * FP32_ERROR


def test_off_is_stock_to_the_bit(gpu_env: Environment) -> None:
    off = heads(gpu_env, overlay=True, on=False)["cases"]
    assert off == heads(gpu_env, overlay=False, on=True)["cases"]


def test_no_fp32_copy_of_the_weight(gpu_env: Environment) -> None:
    outcome = gpu_env.scenario(
        SCENARIOS / "memory.py",
        overlay=True,
        env=ON,
        device="cuda",
        vocabulary=131072,
        hidden=4096,
        rows=64,
    )
    result = outcome.ok()
    assert result["dtype"] == FP32
    assert result["logits"]["mean"] < FP32_ERROR * 10  # sums of 4096 products
    assert result["beside_logits"] < result["fp32_copy"] / 4


@pytest.mark.parametrize("on", [True, False])
def test_an_engine_with_cuda_graphs(gpu_env: Environment, *, on: bool) -> None:
    outcome = gpu_env.scenario(
        SCENARIOS / "engine.py",
        overlay=True,
        env=ON if on else {},
        device="cuda",
        engine={"enforce_eager": False},
    )
    result = outcome.ok()
    assert result["head"]["dtype"] == (FP32 if on else BF16)
    for what in ("distribution", "sampled", "prompt"):
        assert (result[what]["mean"] < FP32_ERROR) is on, what
