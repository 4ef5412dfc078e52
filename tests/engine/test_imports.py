"""Releases whose engines are not run: their patched modules are imported from the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.radio.scenarios import TORCHVISION_STUB

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIO = Path(__file__).parents[1] / "support" / "patched_modules.py"


def test_what_is_served_imports(other_env: Environment) -> None:
    # Not every release's torch has a torchvision here.
    env = {"PYTHONPATH": str(TORCHVISION_STUB)}
    given = {"bypassed": False, "registry": False}
    result, stock = (
        other_env.scenario(SCENARIO, overlay=overlay, env=env, **given).ok()
        for overlay in (True, False)
    )
    assert result["error"] is None
    assert len(result["origins"]) > 1
    assert result["origins"] == {name: result["served"][name] for name in result["origins"]}
    # A module that this machine cannot import is not imported from stock vLLM either.
    assert result["failed"] == stock["failed"]
