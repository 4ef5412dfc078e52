"""An environment whose overlay knows NeMo-RL's patches, each with an outcome of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import installed

# "fp32-lm-head" is not in it: what an overlay of an older queue looks like.
OUTCOMES = {
    "routed-experts-capture": "applied",
    "glm-dsa-sequence-parallel-moe": "applied",
    "eagle3-draft-lm-head": "applied",
    "radio-layerscale": "applied",
    "radio-native-names": "applied",
    "radio-final-layernorm": "present",
    "mq-port-band": "applied",
    "ray-tcpstore-port": "not-needed",
    "ray-py-executable": "applied",
    "openai-namespace-tool": "applied",
}


def patches(outcomes: dict[str, str]) -> list[dict[str, Any]]:
    # The stand-in's own two patches are those that its modules name.
    return [*installed.PATCHES[:2]] + [
        {
            **installed.PATCHES[2],
            "id": name,
            "title": name,
            "outcome": outcome,
            "reason": f"{name} is {outcome} for a reason" if outcome != "applied" else "",
        }
        for name, outcome in outcomes.items()
    ]


def build(root: Path, outcomes: dict[str, str]) -> installed.Interpreter:
    environment = installed.make(root)
    installed.write_vllm(environment.site_packages)
    installed.write_overlay(environment.site_packages, patches=patches(outcomes))
    return environment


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    return build(tmp_path_factory.mktemp("environment") / "venv", OUTCOMES)


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    outcomes = dict.fromkeys([*OUTCOMES, "fp32-lm-head"], "applied")
    return build(tmp_path_factory.mktemp("complete") / "venv", outcomes)


_CALL = """\
import json, os, sys
import vllm_nemo
from vllm_nemo import nemo_rl
try:
    returned = eval(sys.argv[1])
except Exception as error:
    result = {"raised": type(error).__name__, "message": str(error)}
else:
    result = {"returned": returned}
names = ("NRL_VLLM_FP32_LM_HEAD", "NRL_VLLM_RAY_PY_EXECUTABLE", "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY")
result["environment"] = {name: os.environ[name] for name in names if name in os.environ}
result["loaded"] = [name for name in ("vllm", "torch") if name in sys.modules]
print(json.dumps(result))
"""

Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def call() -> Call:
    """Give a function that evaluates an expression in a fresh process of an environment."""

    def call(interpreter: installed.Interpreter, expression: str, **env: str) -> dict[str, Any]:
        return json.loads(interpreter.prints("-c", _CALL, expression, env=env))

    return call
