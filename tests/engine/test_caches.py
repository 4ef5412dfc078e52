"""vLLM's model-info cache is keyed by stock files, so a patch must not change what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.radio.scenarios import TORCHVISION_STUB

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIO = Path(__file__).with_name("model_info.py")


def test_patched_models_have_the_model_info_of_stock(vllm_env: Environment) -> None:
    env = {"PYTHONPATH": str(TORCHVISION_STUB)}
    served = vllm_env.scenario(SCENARIO, overlay=True, env=env).ok()
    if not served["infos"]:
        pytest.skip(f"no patch changes a model file of vLLM {vllm_env.release}")
    stock = vllm_env.scenario(SCENARIO, overlay=False, env=env).ok()
    assert not set(served["origins"]) & set(stock["origins"])
    assert served["infos"] == stock["infos"]
