"""Stand-ins for modules of vLLM that the logic of patches imports when it is called."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def no_layerwise_refit(monkeypatch):
    """Stand in for the two modules that are imported when a weight is loaded: no refit runs."""
    path = "vllm.model_executor.model_loader"
    for name in ("vllm", "vllm.model_executor", path, f"{path}.reload"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    layerwise = ModuleType(f"{path}.reload.layerwise")
    idle = SimpleNamespace(can_load=lambda: False)
    layerwise.get_layerwise_info = lambda _: idle
    utilities = ModuleType(f"{path}.weight_utils")
    utilities.default_weight_loader = None
    monkeypatch.setitem(sys.modules, layerwise.__name__, layerwise)
    monkeypatch.setitem(sys.modules, utilities.__name__, utilities)
