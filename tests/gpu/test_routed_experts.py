"""Routed experts of quantized models, whose monolithic kernels a CPU does not have.

gpt-oss on Hopper or Blackwell: the kernel reports no ids. ModelOpt's NVFP4 on Blackwell: since
0.27.0 the kernel reports them, and is made anew by a refit. What is captured after the refit is
compared for other prompts than before: rows of an older step look right, but for other tokens.
"""

from __future__ import annotations

import pytest

from tests.support.routed_experts_capture.scenarios import (
    all_right,
    assert_right,
    compare,
    quantized,
)

TRITON = "OAITritonMxfp4ExpertsMonolithic"
NVFP4 = "glm in NVFP4"
TRTLLM = "TrtLlmNvFp4ExpertsMonolithic"


@pytest.fixture
def triton(gpu):
    gpu.require(f"vLLM's {TRITON}", least=(9, 0), below=(11, 0), packages=["triton_kernels"])


@pytest.fixture
def trtllm(gpu):
    gpu.require(
        f"vLLM's {TRTLLM}",
        least=(10, 0),
        below=(11, 0),
        packages=["flashinfer", "flashinfer-cubin or nvcc"],
    )


def run(environment, model, backend, *, overlay):
    # With the overlay, decoding runs in CUDA graphs and prefill does not, so both are tested. On
    # stock nothing runs in a graph, because what a graph writes after a refit is undefined there.
    graphs = {
        "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4]},
        "enforce_eager": False,
    }
    engine = {**(graphs if overlay else {}), "moe_backend": backend}
    return quantized(environment, model, overlay=overlay, device="cuda", **engine)


def reports_ids(environment):
    """Tell whether vLLM's kernels can report their ids; it then refuses those that cannot."""
    return environment.at_least("0.27.0")


@pytest.mark.usefixtures("triton")
def test_gpt_oss(gpu_env):
    assert_right(run(gpu_env, "gpt-oss", "triton", overlay=True), "gpt-oss", TRITON)


@pytest.mark.usefixtures("triton")
def test_gpt_oss_on_stock(gpu_env):
    result = run(gpu_env, "gpt-oss", "triton", overlay=False)
    if not reports_ids(gpu_env):
        assert result["kernels"] == [TRITON]
        captured = compare(result["before"])
        assert captured.zero == captured.wrong == captured.rows
        return
    assert "before" not in result
    assert f"not supported with monolithic MoE kernel {TRITON}" in result["refused"]


@pytest.mark.usefixtures("trtllm")
def test_nvfp4_through_a_refit(gpu_env):
    assert_right(run(gpu_env, NVFP4, "flashinfer_trtllm", overlay=True), NVFP4, TRTLLM)


@pytest.mark.usefixtures("trtllm")
def test_nvfp4_through_a_refit_on_stock(gpu_env):
    result = run(gpu_env, NVFP4, "flashinfer_trtllm", overlay=False)
    assert result["kernels"] == [TRTLLM]
    before = compare(result["before"])
    after = compare(result["after"])
    if not reports_ids(gpu_env):
        assert before.zero == before.rows
        assert after.zero == after.rows
        return
    assert before == all_right(NVFP4)
    # Zeros in 0.27, rows of older steps since. A row of another token can be right by chance.
    assert after.wrong > 0.9 * after.rows
