"""vLLM itself calls the guard, and the processes that it starts run the patched modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIO = Path(__file__).with_name("guard.py")


def _run(vllm_env: Environment, how: str, *, overlay: bool = True) -> tuple[dict, str]:
    outcome = vllm_env.scenario(SCENARIO, overlay=overlay, how=how)
    result = outcome.ok()
    assert result["origins"], "no patched module could be imported"
    return result, outcome.output


@pytest.mark.parametrize("how", ["plain", "registry"])
def test_patched_modules_are_served_and_the_guard_passes(vllm_env: Environment, how: str) -> None:
    result, _ = _run(vllm_env, how)
    assert result["error"] is None
    assert result["origins"] == {name: result["served"][name] for name in result["origins"]}


@pytest.mark.parametrize("how", ["plain", "registry"])
def test_switched_off_they_are_stock_and_a_warning_says_so(vllm_env: Environment, how: str) -> None:
    result, output = _run(vllm_env, how, overlay=False)
    assert result["error"] is None
    assert not set(result["origins"].values()) & set(result["served"].values())
    if how == "plain":  # vLLM keeps what its child prints to itself
        assert "NRL_VLLM_OVERLAY=off: this process runs stock vLLM" in output


@pytest.mark.parametrize("how", ["bypassed", "removed"])
def test_vllm_does_not_swallow_the_guard(vllm_env: Environment, how: str) -> None:
    result, _ = _run(vllm_env, how)
    assert not set(result["origins"].values()) & set(result["served"].values())
    assert result["error"].startswith("OverlayError: vllm-nemo is installed, but this process runs")
    for name, origin in result["origins"].items():
        assert f"{name} from {origin}" in result["error"]
