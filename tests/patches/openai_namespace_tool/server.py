"""Scenario: vLLM's OpenAI-compatible server, and a client of it, on the same ``openai``.

The client comes first on ``PYTHONPATH``, so the server and this process have the same one. A tiny
random Llama answers; named tool choices make it answer with calls (structured output). Requests
are sent by the client and by plain HTTP.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODEL = "tiny"
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": WEATHER}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
TOOL = {"type": "function", "strict": True, **FUNCTION}
NAMESPACE = {"type": "namespace", "name": "sky", "description": "The sky.", "tools": [TOOL]}
ASK = [{"role": "user", "content": "hi"}]
CALLED = [
    *ASK,
    {
        "type": "function_call",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
]
CHAT_CALLED = [
    *ASK,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]
CHAT: dict[str, Any] = {"model": MODEL, "messages": ASK, "max_tokens": 100, "temperature": 0}
RESPONSES: dict[str, Any] = {
    "model": MODEL,
    "input": ASK,
    "max_output_tokens": 100,
    "temperature": 0,
    "store": False,
}
NAMED_CHAT = {
    "tools": [CHAT_TOOL],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
}
NAMED = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}
REQUESTS = {
    "chat tools": ("chat/completions", {**CHAT, "tools": [CHAT_TOOL]}),
    "chat named": ("chat/completions", {**CHAT, **NAMED_CHAT}),
    "chat result": (
        "chat/completions",
        {**CHAT, "messages": CHAT_CALLED, "tools": [CHAT_TOOL]},
    ),
    "responses tools": ("responses", {**RESPONSES, "tools": [TOOL]}),
    "responses named": ("responses", {**RESPONSES, **NAMED}),
    "responses result": ("responses", {**RESPONSES, "input": CALLED, "tools": [TOOL]}),
    "responses namespaced result": (
        "responses",
        {
            **RESPONSES,
            "input": [ASK[0], {**CALLED[1], "namespace": "sky"}, CALLED[2]],
            "tools": [TOOL],
        },
    ),
    "responses namespace tool": ("responses", {**RESPONSES, "tools": [TOOL, NAMESPACE]}),
    "responses shell tool": ("responses", {**RESPONSES, "tools": [{"type": "shell"}]}),
}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:{{ m['content'] or '' }}"
    "{% for c in m['tool_calls'] or [] %}{{ c['function']['name'] }}{% endfor %}\n{% endfor %}"
)


def write_model(directory: str) -> str:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = str(Path(directory, MODEL))
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")  # noqa: S106
    # The tool parser looks for these.
    fast.add_tokens(["<tool_call>", "</tool_call>"])
    fast.chat_template = TEMPLATE
    fast.save_pretrained(path)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    # JSON allows any amount of white space, and a random model could go on with it forever. So one
    # feature of the embedding is large for every token, and the head scores white space low by it.
    white = [vocabulary[c] for c in "\u0120\u010a\u010d\u0109"]  # space, newline, return, tab
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 5.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[white, 0] = -10.0
    model.to(torch.bfloat16).save_pretrained(path)
    return path


def start(model: str, log: Path) -> tuple[subprocess.Popen, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model, "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024"]
    command += ["--enforce-eager", "--max-num-seqs", "4", "--no-enable-prefix-caching"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command += ["--structured-outputs-config", json.dumps({"backend": "xgrammar"})]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    return process, f"http://127.0.0.1:{port}"


def wait(process: subprocess.Popen, url: str) -> bool:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310
                return True
        except OSError:
            time.sleep(0.5)
    return False


def plain(url: str) -> dict[str, Any]:
    """Send every request by plain HTTP; give the status, and the answer or the error."""
    results = {}
    for name, (path, body) in REQUESTS.items():
        request = urllib.request.Request(  # noqa: S310
            f"{url}/v1/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                results[name] = {"status": answer.status, **summary(json.load(answer))}
        except urllib.error.HTTPError as error:
            results[name] = {"status": error.code, "error": error.read().decode()}
    return results


def summary(answer: dict[str, Any]) -> dict[str, Any]:
    calls = [
        (item["name"], item["arguments"])
        for item in answer.get("output", [])
        if item["type"] == "function_call"
    ]
    for choice in answer.get("choices", []):
        functions = [call["function"] for call in choice["message"].get("tool_calls") or []]
        calls.extend((function["name"], function["arguments"]) for function in functions)
    return {"object": answer["object"], "calls": calls}


def through_client(url: str) -> dict[str, Any]:
    """Send every request by the client, and two of them as streams."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    results = {}

    def send(name: str, function: Callable[[], dict[str, Any]]) -> None:
        try:
            results[name] = {"status": 200, **function()}
        except openai.APIStatusError as error:
            results[name] = {"status": error.status_code, "error": error.response.text}

    for name, (path, body) in REQUESTS.items():
        create = client.responses.create if path == "responses" else client.chat.completions.create
        send(name, lambda create=create, body=body: summary(create(**body).model_dump()))

    def stream_chat() -> dict[str, Any]:
        pieces = list(client.chat.completions.create(**CHAT, **NAMED_CHAT, stream=True))
        arguments = [
            call.function.arguments or ""
            for piece in pieces
            for choice in piece.choices
            for call in choice.delta.tool_calls or []
        ]
        return {"calls": [("weather", "".join(arguments))]}

    def stream_responses() -> dict[str, Any]:
        events = list(client.responses.create(**RESPONSES, **NAMED, stream=True))
        assert events[-1].type == "response.completed", events[-1]
        return summary(events[-1].response.model_dump())

    send("chat stream", stream_chat)
    send("responses stream", stream_responses)
    return results


def main() -> None:
    import openai

    result: dict[str, Any] = {"openai": openai.__version__}
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        process, url = start(write_model(scratch), log)
        try:
            result["started"] = wait(process, url)
            if result["started"]:
                result["plain"] = plain(url)
                result["client"] = through_client(url)
                result["alive"] = process.poll() is None
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            print(log.read_text()[-6000:])
            result["log"] = log.read_text()[-6000:]
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
