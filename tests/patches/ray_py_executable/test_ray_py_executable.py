"""Interpreter and environment of real Ray actors, as both executors ask for them."""

from __future__ import annotations

import pytest

from tests.support.ray import workers

SWITCHES = {"NRL_VLLM_FP32_LM_HEAD": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def named(environment):
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("NRL_VLLM_") or name == "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
    }


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_stock_asks_for_no_interpreter_and_sends_no_switch_in_time(vllm_env, version):
    told = workers(vllm_env, overlay=False)[f"{version} value"]
    assert told["through"] == []
    assert not SWITCHES.items() & told["started"].items()


def test_stock_version_1_and_the_engine_core_do_not_know_the_switches(vllm_env):
    found = workers(vllm_env, overlay=False)
    assert not SWITCHES.items() & found["v1 value"]["sent"].items()
    assert found["copied"] == []


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_unset_is_stock(vllm_env, version):
    told = workers(vllm_env, overlay=True)[f"{version} unset"]
    stock = workers(vllm_env, overlay=False)[f"{version} unset"]
    assert told["through"] == []
    assert named(told["started"]) == {}
    # Ray's own entries differ from worker to worker; what vLLM asked for does not.
    noset = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
    assert told["started"][noset] == stock["started"][noset]


@pytest.mark.parametrize(
    ("case", "through"),
    [
        ("v1 value", "WRAPPER"),
        ("v1 driver", "DRIVER"),
        ("v2 value", "WRAPPER"),
        ("v2 driver", "DRIVER"),
        ("v2 command", "WRAPPER"),
        ("v2 caller's", "OTHER"),
    ],
)
def test_the_interpreter_that_was_asked_for_runs_the_worker(vllm_env, case, through):
    assert workers(vllm_env, overlay=True)[case]["through"] == [through]


def test_a_command_is_taken_as_it_is(vllm_env):
    assert workers(vllm_env, overlay=True)["v2 command"]["started"]["MARK"] == "here"


@pytest.mark.parametrize("case", ["v1 value", "v2 value"])
def test_the_switches_are_there_when_the_process_starts(vllm_env, case):
    started = workers(vllm_env, overlay=True)[case]["started"]
    assert SWITCHES.items() <= started.items()
    assert started["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] == "1", "what vLLM sends stays"


def test_what_the_caller_asked_for_stays(vllm_env):
    started = workers(vllm_env, overlay=True)["v2 caller's"]["started"]
    assert started["MINE"] == "kept"
    assert started["NRL_VLLM_FP32_LM_HEAD"] == "0"
    assert started["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"


def test_version_1_and_the_engine_core_copy_the_switches(vllm_env):
    found = workers(vllm_env, overlay=True)
    assert SWITCHES.items() <= found["v1 value"]["sent"].items()
    assert found["copied"] == sorted(SWITCHES)
