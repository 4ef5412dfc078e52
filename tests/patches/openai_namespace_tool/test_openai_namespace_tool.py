"""Old openai clients, made for real, against vLLM's imports and its server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.environment import Environment

HERE = Path(__file__).parent
# The newest that NeMo-Gym's pin allows, and the oldest that it is tested with.
OLD = ("2.7.2", "2.6.1")
MISSING = "openai.types.responses.NamespaceTool"

# Modules of stock vLLM that cannot be imported with an old client.
BLOCKED = {
    "vllm.tool_parsers",
    "vllm.tool_parsers.utils",
    "vllm.tool_parsers.abstract_tool_parser",
    "vllm.parser.abstract_parser",
    "vllm.entrypoints.openai.chat_completion.serving",
    "vllm.entrypoints.openai.responses.serving",
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.anthropic.serving",
}

ANSWERED = (
    "chat tools",
    "chat named",
    "chat result",
    "responses tools",
    "responses named",
    "responses result",
    "responses namespaced result",
)
REFUSED = {"responses namespace tool": "namespace", "responses shell tool": "shell"}
NAMED_RESPONSES = ("responses named", "responses stream")
NAMED_CHAT = ("chat named", "chat stream")


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for each old client, with what it needs beside the newest one's dependencies."""
    root = tmp_path_factory.mktemp("clients")
    for version in OLD:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--target", str(root / version), f"openai=={version}", "distro"]
        subprocess.run(command, check=True)
    return root


def run(environment: Environment, script: str, client: Path | None, *, overlay: bool):
    env = {} if client is None else {"PYTHONPATH": str(client)}
    return environment.scenario(
        HERE / script, overlay=overlay, env=env, **arguments(script, overlay)
    )


def arguments(script: str, overlay: bool) -> dict:
    return {"patched": overlay} if script == "imports.py" else {}


def test_an_old_client_keeps_stock_vllm_from_importing(
    vllm_env: Environment, clients: Path
) -> None:
    result = run(vllm_env, "imports.py", clients / OLD[0], overlay=False).ok()
    assert result["openai"] == OLD[0]
    assert list(result["missing"]) == [MISSING]
    assert result["missing"][MISSING] == ["vllm/tool_parsers/utils.py"]
    # Before 0.27.0, and again since 0.30.0, `from vllm import LLM` fails as well.
    spared = vllm_env.at_least("0.27.0") and not vllm_env.at_least("0.30.0")
    llm = set() if spared else {"vllm.entrypoints.llm"}
    assert set(result["failed"]) == BLOCKED | llm
    assert all("NamespaceTool" in error for error in result["failed"].values())


@pytest.mark.parametrize("version", OLD)
def test_every_import_works_with_the_overlay(
    vllm_env: Environment, clients: Path, version: str
) -> None:
    result = run(vllm_env, "imports.py", clients / version, overlay=True).ok()
    assert result["openai"] == version
    assert result["names"] > 70
    assert result["missing"] == {}
    assert result["failed"] == {}
    assert "namespace" not in result["known"]
    assert {"function", "mcp", "custom"} <= set(result["known"])
    assert set(result["refused"]) == {"namespace", "shell", "no such type"}


def test_the_newest_client_is_left_alone(vllm_env: Environment) -> None:
    result = run(vllm_env, "imports.py", None, overlay=True).ok()
    assert result["missing"] == {}
    assert result["failed"] == {}
    assert result["tool"].startswith("openai.types.responses.")
    assert "namespace" in result["known"]
    assert result["refused"] == {}


def test_the_stock_server_does_not_start(vllm_env: Environment, clients: Path) -> None:
    result = run(vllm_env, "server.py", clients / OLD[0], overlay=False).ok()
    assert not result["started"]
    assert "NamespaceTool" in result["log"]


def test_the_server_answers(vllm_env: Environment, clients: Path) -> None:
    version = OLD[0]
    result = run(vllm_env, "server.py", clients / version, overlay=True).ok()
    assert result["openai"] == version
    assert result["started"], result["log"]
    assert result["alive"]
    for way in ("plain", "client"):
        answers = result[way]
        for name in ANSWERED:
            assert answers[name]["status"] == 200, (way, name, answers[name])
        for name, kind in REFUSED.items():
            assert answers[name]["status"] == 400
            message = json.loads(answers[name]["error"])["error"]["message"]
            assert f"'{kind}'" in message
            assert f"openai {version}" in message
            assert "openai>=2.25.0" in message
        # Since 0.31.0 vLLM without a tool parser does not hold a chat to the named tool, whatever
        # the client; a random model then does not call it.
        named = () if vllm_env.at_least("0.31.0") else NAMED_CHAT
        for name in {*NAMED_RESPONSES, *named} & set(answers):
            ((function, given),) = answers[name]["calls"]
            assert function == "weather"
            assert json.loads(given)["city"] in ("Oslo", "Rome")
    # The same request gives the same call over plain HTTP and through the client.
    assert result["client"]["chat named"]["calls"] == result["plain"]["chat named"]["calls"]
    assert {"chat stream", "responses stream"} <= set(result["client"])
