"""vLLM itself calls the guard, and the processes that it starts run the patched modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.environment import Environment, Outcome

SCENARIO = Path(__file__).with_name("guard.py")


def run(vllm_env: Environment, *, overlay: bool = True, bypassed: bool = False) -> Outcome:
    registry = not bypassed
    outcome = vllm_env.scenario(SCENARIO, overlay=overlay, bypassed=bypassed, registry=registry)
    for found in (outcome.ok(), *([outcome.ok()["registry"]] if registry else [])):
        assert found["origins"], "no patched module could be imported"
    return outcome


def test_patched_modules_are_served_and_the_guard_passes(vllm_env: Environment) -> None:
    result = run(vllm_env).ok()
    assert result["error"] is None
    for found in (result, result["registry"]):
        assert found["origins"] == {name: result["served"][name] for name in found["origins"]}


def test_switched_off_they_are_stock_and_a_warning_says_so(vllm_env: Environment) -> None:
    outcome = run(vllm_env, overlay=False)
    result = outcome.ok()
    assert result["error"] is None
    for found in (result, result["registry"]):
        assert not set(found["origins"].values()) & set(result["served"].values())
    assert "NRL_VLLM_OVERLAY=off: this process runs stock vLLM" in outcome.output


def test_vllm_does_not_swallow_the_guard(vllm_env: Environment) -> None:
    result = run(vllm_env, bypassed=True).ok()
    assert not set(result["origins"].values()) & set(result["served"].values())
    assert result["error"].startswith("OverlayError: vllm-nemo is installed, but this process runs")
    for name, origin in result["origins"].items():
        assert f"{name} from {origin}" in result["error"]
