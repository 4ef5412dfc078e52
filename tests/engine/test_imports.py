"""The releases whose engines are not run: their patched modules import, from the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIO = Path(__file__).with_name("guard.py")


def test_what_is_served_imports(other_env: Environment) -> None:
    result = other_env.scenario(SCENARIO, overlay=True, bypassed=False, registry=False).ok()
    assert result["error"] is None
    assert len(result["origins"]) > 1
    assert result["origins"] == {name: result["served"][name] for name in result["origins"]}
    # What this machine cannot import, it cannot import from stock vLLM either.
    stock = other_env.scenario(SCENARIO, overlay=False, bypassed=False, registry=False).ok()
    assert result["failed"] == stock["failed"]
