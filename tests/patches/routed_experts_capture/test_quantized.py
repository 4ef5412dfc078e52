"""Routed experts of those models of the device tests that a CPU can run.

The scenario is that of ``tests/gpu/test_routed_experts.py``: gpt-oss in MXFP4 with vLLM's kernel
for AMX, and the GLM model of its NVFP4 checkpoint in bf16.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.routed_experts_capture.scenarios import assert_right, compare, quantized

FORMAT = Path(__file__).parent / "quantized_format.py"
MXFP4_KERNEL = "CPUExpertsMxfp4"


@pytest.fixture
def transport(vllm_env):
    if vllm_env.at_least("0.31.0"):
        pytest.skip("from 0.31.0 on routed experts leave an engine through Triton; a CPU has none")


@pytest.fixture
def monolithic(vllm_env):
    if vllm_env.at_least("0.30.0"):
        pytest.skip("from 0.30.0 on this kernel for CPUs is not monolithic")


@pytest.fixture
def amx():
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    if "amx_tile" not in flags:
        pytest.skip("vLLM's MXFP4 kernel for CPUs needs AMX; this CPU has no amx_tile")


@pytest.mark.usefixtures("amx", "transport")
def test_gpt_oss_in_mxfp4(vllm_env):
    assert_right(quantized(vllm_env, "gpt-oss", overlay=True), "gpt-oss", MXFP4_KERNEL)


@pytest.mark.usefixtures("amx", "monolithic")
def test_gpt_oss_in_mxfp4_on_stock(vllm_env):
    result = quantized(vllm_env, "gpt-oss", overlay=False)
    if not vllm_env.at_least("0.27.0"):
        captured = compare(result["before"])
        assert captured.zero == captured.wrong == captured.rows
        return
    assert "before" not in result
    assert f"not supported with monolithic MoE kernel {MXFP4_KERNEL}" in result["refused"]


@pytest.mark.usefixtures("transport")
def test_glm_in_bf16(vllm_env):
    assert_right(quantized(vllm_env, "glm", overlay=True), "glm")


def test_the_nvfp4_checkpoint_is_what_vllm_reads(vllm_env):
    result = vllm_env.scenario(FORMAT, overlay=False).ok()
    assert result["weights"] == 3 * 64 * 2  # of three projections, in 64 experts and two layers
    assert result["different"] == []
    assert result["quantized"] == ["model.layers.1.mlp.experts", "model.layers.2.mlp.experts"]
