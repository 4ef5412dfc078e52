"""Patch ``ray-py-executable``: what its logic puts into a runtime_env."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest
from vllm_nemo.patches import ray_py_executable

EXCLUDED = "NRL_VLLM_NODE_LOCAL"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("NRL_VLLM_", "RAY_")):
            monkeypatch.delenv(name)
    for name in ("vllm", "vllm.ray"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    ray_env = ModuleType("vllm.ray.ray_env")
    ray_env.RAY_NON_CARRY_OVER_ENV_VARS = {EXCLUDED}
    monkeypatch.setitem(sys.modules, "vllm.ray.ray_env", ray_env)
    return monkeypatch


@pytest.mark.parametrize("value", [None, "", "  "])
def test_unset_changes_nothing(environment, value):
    if value is not None:
        environment.setenv("NRL_VLLM_RAY_PY_EXECUTABLE", value)
    assert ray_py_executable.py_executable() is None
    runtime_env = {"working_dir": "/work", "py_executable": "mine"}
    environment.delenv("NRL_VLLM_RAY_PY_EXECUTABLE", raising=False)
    ray_py_executable.set_defaults(runtime_env)
    assert runtime_env == {"working_dir": "/work", "py_executable": "mine"}
    assert ray_py_executable.actor_options() == {}


@pytest.mark.parametrize(
    ("value", "python"),
    [
        ("driver", sys.executable),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
        ("uv run --locked", "uv run --locked"),
    ],
)
def test_the_interpreter(environment, value, python):
    environment.setenv("NRL_VLLM_RAY_PY_EXECUTABLE", value)
    assert ray_py_executable.actor_options()["runtime_env"]["py_executable"] == python


def test_the_callers_interpreter_stays(environment):
    environment.setenv("NRL_VLLM_RAY_PY_EXECUTABLE", "driver")
    runtime_env = {"py_executable": "mine"}
    ray_py_executable.set_defaults(runtime_env)
    assert runtime_env["py_executable"] == "mine"


@pytest.mark.parametrize("key", ["image_uri", "container"])
def test_a_container_keeps_its_interpreter_and_says_so(environment, caplog, key):
    environment.setenv("NRL_VLLM_RAY_PY_EXECUTABLE", "driver")
    runtime_env = {key: "registry/image"}
    ray_py_executable.set_defaults(runtime_env)
    assert "py_executable" not in runtime_env
    (record,) = caplog.records
    assert "NRL_VLLM_RAY_PY_EXECUTABLE=driver has no effect" in record.getMessage()


def test_the_switches_and_only_they_are_sent(environment):
    environment.setenv("NRL_VLLM_FP32_LM_HEAD", "1")
    environment.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    environment.setenv("NRL_OTHER", "1")
    environment.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert ray_py_executable.actor_options() == {
        "runtime_env": {
            "env_vars": {"NRL_VLLM_FP32_LM_HEAD": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
        }
    }


def test_what_the_caller_sends_stays(environment):
    environment.setenv("NRL_VLLM_FP32_LM_HEAD", "1")
    environment.setenv("NRL_VLLM_ANOTHER", "1")
    caller = {"NRL_VLLM_FP32_LM_HEAD": "0", "MINE": "x"}
    runtime_env = {"env_vars": caller}
    ray_py_executable.set_defaults(runtime_env)
    assert runtime_env["env_vars"] == {
        "NRL_VLLM_FP32_LM_HEAD": "0",
        "NRL_VLLM_ANOTHER": "1",
        "MINE": "x",
    }
    assert caller == {"NRL_VLLM_FP32_LM_HEAD": "0", "MINE": "x"}, "the caller's own is not touched"


def test_what_the_user_excludes_stays_away(environment):
    environment.setenv(EXCLUDED, "1")
    assert ray_py_executable.actor_options() == {}
