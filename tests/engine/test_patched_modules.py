"""vLLM's patched modules: where they come from in its processes, and what vLLM records of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.radio.scenarios import TORCHVISION_STUB

if TYPE_CHECKING:
    from tests.support.environment import Environment, Outcome

SCENARIO = Path(__file__).parents[1] / "support" / "patched_modules.py"


def run(vllm_env: Environment, *, overlay: bool = True, bypassed: bool = False) -> Outcome:
    registry = not bypassed
    # Not every release's torch has a torchvision here.
    env = {"PYTHONPATH": str(TORCHVISION_STUB)}
    given = {"bypassed": bypassed, "registry": registry}
    outcome = vllm_env.scenario(SCENARIO, overlay=overlay, env=env, **given)
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


def test_patched_models_have_the_model_info_of_stock(vllm_env: Environment) -> None:
    """vLLM keys its cache of this information by stock files, so a patch must not change it."""
    served, stock = (run(vllm_env, overlay=overlay).ok()["infos"] for overlay in (True, False))
    if not served:
        pytest.skip(f"no patch changes a model file of vLLM {vllm_env.release}")
    assert served == stock
