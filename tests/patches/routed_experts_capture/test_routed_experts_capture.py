"""Patch ``routed-experts-capture``: the ids that the engine returns are those the model used.

The oracle is transformers' own model on the same checkpoint. Ids of one token and layer are
compared as a set: no order is promised.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.routed_experts_capture.scenarios import IN_PROCESS

HERE = Path(__file__).parent
CAPTURE = HERE / "capture.py"
WIRING = HERE / "wiring.py"

DENSE_LAYERS = 1
LAYERS = 4
TOP_K = 4

# Since 0.31.0 the ids leave the engine in another way, which needs the second model runner, and so
# Triton. There is none for a CPU: what is left to look at here is the wiring.
NO_TRANSPORT = "AuxOutput Connector requires Model Runner V2"


def refusal(vllm_env):
    """Return the error with which stock vLLM refuses on a CPU; None where it returns zeros.

    Before 0.30.0 a CPU's kernel is monolithic and cannot report the ids that it routes to.
    """
    if vllm_env.at_least("0.31.0"):
        return NO_TRANSPORT
    if not vllm_env.at_least("0.27.0") or vllm_env.at_least("0.30.0"):
        return None
    if not vllm_env.at_least("0.28.0"):
        return (
            "ValueError: --enable-return-routed-experts is not supported with monolithic MoE "
            "kernel NoneType"
        )
    return (
        "ValueError: Routed-experts capture is not supported with monolithic MoE kernel "
        "CPUUnquantizedExperts"
    )


def skip_without_transport(vllm_env):
    """Skip what needs an engine that returns ids on a CPU."""
    if vllm_env.at_least("0.31.0"):
        pytest.skip(f"{NO_TRANSPORT}, which needs Triton; a CPU has none")


def outputs(result):
    """Pair every output of the engine with transformers' answer."""
    for engine, reference in zip(result["batches"], result["reference"], strict=True):
        yield from zip(engine, reference, strict=True)


def test_stock_loses_the_experts_or_refuses(vllm_env):
    # In 0.30.0 a CPU's kernels are not monolithic. Only a compiled model has no ids, because the
    # compiler has been through the MoE layers before anything is bound to them.
    compiled = vllm_env.at_least("0.30.0")
    env = {**IN_PROCESS, **({"TORCHDYNAMO_DISABLE": "0"} if compiled else {})}
    result = vllm_env.scenario(CAPTURE, overlay=False, env=env, compiled=compiled).ok()
    expected = refusal(vllm_env)
    if expected is not None:
        assert "batches" not in result
        assert expected in result["refused"]
        return
    for output, reference in outputs(result):
        assert output["tokens"] == reference["tokens"]  # only the ids are lost
        assert all(ids == [0] * TOP_K for token in output["experts"] for ids in token)


def test_overlay_returns_the_experts_that_transformers_uses(vllm_env):
    """In a compiled model, which calls MoE layers in another way; test_quantized has eager ones."""
    skip_without_transport(vllm_env)
    env = {**IN_PROCESS, "TORCHDYNAMO_DISABLE": "0"}
    result = vllm_env.scenario(CAPTURE, overlay=True, env=env, compiled=True).ok()
    assert "refused" not in result, result
    rows = 0
    for output, reference in outputs(result):
        assert output["tokens"] == reference["tokens"]
        assert output["dtype"] == "uint8"
        for layer, expected in enumerate(reference["experts"]):
            captured = [token[layer] for token in output["experts"]]
            if layer < DENSE_LAYERS:
                assert all(ids == [0] * TOP_K for ids in captured)
            else:
                assert [sorted(ids) for ids in captured] == expected
                rows += len(expected)
    # (tokens of six prompts + 5 new tokens each) in three MoE layers
    assert rows == (37 + 5 + 3 + 37 + 9 + 1 + 6 * 5) * (LAYERS - DENSE_LAYERS)
    # The second batch's long prompt began with a block from the prefix cache.
    assert [output["cached"] for output in result["batches"][1]] == [32, 0, 0]


def keeps_binding(vllm_env):
    """Tell whether vLLM's own binding outlives a kernel: the layer owns it since 0.32.0."""
    return vllm_env.at_least("0.32.0")


def reports(vllm_env):
    """Tell whether vLLM has kernels that report their ids, which came with 0.27.0."""
    return vllm_env.at_least("0.27.0")


# What wiring.py notes: the kernel ran, the router was asked, an id was captured for layer 2.
KERNEL = [["kernel", 10]]
KERNEL_CAPTURED = [["kernel", 10], ["captured", 2, 10]]
ROUTER_CAPTURED = [["router", 5], ["captured", 2, 5]]
HOST_ROUTED = [*ROUTER_CAPTURED, *KERNEL]
ANEW_CAPTURED = [event for n in (10, 11, 12) for event in (["kernel", n], ["captured", 2, n])]


def refused(events):
    """Tell whether the binder raised before anything ran."""
    (error,) = events
    return error.startswith("ValueError: ") and "not supported with monolithic MoE kernel" in error


def test_wiring_on_the_overlay(any_env):
    got = any_env.scenario(WIRING, overlay=True).ok()
    assert got.pop("unbound") == KERNEL
    # Routed once, without counting expert load, and before the kernel may change its input.
    assert got.pop("no kernel") == HOST_ROUTED
    assert got.pop("modular") == [*ROUTER_CAPTURED, ["load"]]  # as on stock
    neither = got.pop("neither")
    if not reports(any_env):
        assert neither == KERNEL  # as on stock; vLLM has no router of this kind
        assert got == {}
        return
    assert refused(neither)
    assert got.pop("silent kernel") == HOST_ROUTED
    assert got.pop("silent kernel anew") == HOST_ROUTED * 2
    assert got.pop("reporting kernel") == KERNEL_CAPTURED
    assert got.pop("made anew") == ANEW_CAPTURED
    # An error, because the ids would be those of an older step.
    *before, error = got.pop("silent anew")
    assert before == KERNEL_CAPTURED
    if keeps_binding(any_env):  # as on stock
        assert refused([error])
    else:
        assert error.startswith("RuntimeError: vllm-nemo (patch routed-experts-capture): ")
        assert "model.layers.2.mlp.experts " in error
    assert got == {}


def test_wiring_on_stock(any_env):
    got = any_env.scenario(WIRING, overlay=False).ok()
    assert got["modular"] == [*ROUTER_CAPTURED, ["load"]]
    if not reports(any_env):
        assert got["no kernel"] == KERNEL  # nothing is captured
        return
    assert refused(got["no kernel"])
    assert refused(got["silent kernel"])
    assert got["reporting kernel"] == KERNEL_CAPTURED
    if keeps_binding(any_env):
        assert got["made anew"] == ANEW_CAPTURED
        *before, error = got["silent anew"]
        assert before == KERNEL_CAPTURED
        assert refused([error])
        return
    # A new kernel is not bound.
    assert got["made anew"] == [*KERNEL_CAPTURED, ["kernel", 11], ["kernel", 12]]
    assert got["silent anew"] == [*KERNEL_CAPTURED, *KERNEL]
