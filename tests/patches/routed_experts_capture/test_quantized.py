"""Routed experts of the models that the device tests run, where a CPU can run them.

The scenario is that of ``tests/gpu/test_routed_experts.py``: gpt-oss in MXFP4 with vLLM's kernel
for AMX, and the GLM model of its NVFP4 checkpoint in bf16.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patches.routed_experts_capture import quantized_routes as routes
from tests.patches.routed_experts_capture.test_routed_experts_capture import IN_PROCESS, STOCK

HERE = Path(__file__).parent
SCENARIO = HERE / "quantized.py"
MODELS = {
    "gpt-oss": {"family": "gpt-oss", "form": "mxfp4"},
    "glm": {"family": "glm", "form": "bf16"},
}
MOE_LAYERS = {"gpt-oss": 3, "glm": 2}
MXFP4_KERNEL = "CPUExpertsMxfp4"


@pytest.fixture
def amx():
    flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    if "amx_tile" not in flags:
        pytest.skip("vLLM's MXFP4 kernel for CPUs needs AMX; this CPU has no amx_tile")


def run(vllm_env, model, *, overlay):
    return vllm_env.scenario(SCENARIO, overlay=overlay, env=IN_PROCESS, **MODELS[model]).ok()


def assert_right(result, model):
    assert "refused" not in result, result
    assert "refit" not in result, result["refit"]
    for when in ("before", "after"):
        assert routes.compare(result[when]) == routes.all_right(MOE_LAYERS[model]), when


@pytest.mark.usefixtures("amx")
def test_gpt_oss_in_mxfp4(vllm_env):
    result = run(vllm_env, "gpt-oss", overlay=True)
    assert result["kernels"] == [MXFP4_KERNEL]
    assert_right(result, "gpt-oss")


@pytest.mark.usefixtures("amx")
def test_gpt_oss_in_mxfp4_on_stock(vllm_env):
    result = run(vllm_env, "gpt-oss", overlay=False)
    if STOCK[vllm_env.release] is None:
        captured = routes.compare(result["before"])
        assert captured.zero == captured.wrong == captured.rows
        return
    assert "before" not in result
    assert f"not supported with monolithic MoE kernel {MXFP4_KERNEL}" in result["refused"]


def test_glm_in_bf16(vllm_env):
    assert_right(run(vllm_env, "glm", overlay=True), "glm")


def test_the_nvfp4_checkpoint_is_what_vllm_reads(vllm_env):
    result = vllm_env.scenario(HERE / "quantized_format.py", overlay=False).ok()
    assert result["weights"] == 3 * 64 * 2  # of three projections, in 64 experts and two layers
    assert result["different"] == []
    assert result["quantized"] == ["model.layers.1.mlp.experts", "model.layers.2.mlp.experts"]
