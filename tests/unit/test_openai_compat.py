"""``vllm_nemo.openai_compat`` without a client; ``tests/patches`` has it with real ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "overlay"))

from vllm_nemo import openai_compat


@pytest.mark.parametrize(
    ("call", "namespace"),
    [
        (SimpleNamespace(name="f"), None),
        (SimpleNamespace(name="f", namespace=None), None),
        (SimpleNamespace(name="f", namespace="sky"), "sky"),
    ],
)
def test_namespace_of_a_call(call: object, namespace: str | None) -> None:
    assert openai_compat.namespace_of(call) == namespace


@pytest.mark.parametrize("request_", [None, "text", [], {}, {"tools": None}, {"tools": "text"}])
def test_a_request_without_tools_needs_no_client(request_: object) -> None:
    openai_compat.refuse_unknown_tools(request_)
