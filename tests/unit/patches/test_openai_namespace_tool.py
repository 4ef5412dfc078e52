"""Patch ``openai-namespace-tool``: its logic without a client; tests/patches has real ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from vllm_nemo.patches import openai_namespace_tool


@pytest.mark.parametrize(
    ("call", "namespace"),
    [
        (SimpleNamespace(name="f"), None),
        (SimpleNamespace(name="f", namespace=None), None),
        (SimpleNamespace(name="f", namespace="sky"), "sky"),
    ],
)
def test_namespace_of_a_call(call: object, namespace: str | None) -> None:
    assert openai_namespace_tool.namespace_of(call) == namespace


@pytest.mark.parametrize("request_", [None, "text", [], {}, {"tools": None}, {"tools": "text"}])
def test_a_request_without_tools_needs_no_client(request_: object) -> None:
    openai_namespace_tool.refuse_unknown_tools(request_)
