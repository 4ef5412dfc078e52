"""Ask a real engine for the routed experts of a few prompts, and transformers for the same.

Arguments: ``compiled``: whether vLLM compiles the model.
Result: ``reference`` and ``batches``, see the fields below; or ``refused`` when the engine does not
start. The engine runs in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import vllm_internals

NEW_TOKENS = 6
HERE = Path(__file__).parent


def prompt(length: int, seed: int) -> list[int]:
    return [(seed * 37 + i * i * 11 + i * 5) % 250 + 1 for i in range(length)]


# Steps hold 16 tokens, so the first prompt is prefilled in three pieces. It comes back with another
# ending in the second batch: a block of 32 tokens of it is then read from the prefix cache.
LONG = prompt(37, 1)
BATCHES = [
    [LONG, prompt(5, 2), prompt(3, 3)],
    [[*LONG[:33], *prompt(4, 4)], prompt(9, 5), prompt(1, 6)],
]


def main() -> None:
    arguments = json.loads(sys.argv[1])
    model = Path.cwd() / "model"
    request = {"model": str(model), "seed": 0, "batches": BATCHES, "new_tokens": NEW_TOKENS}
    answer = subprocess.run(
        [sys.executable, HERE / "reference.py", json.dumps(request)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = {"reference": json.loads(answer.stdout.splitlines()[-1])}

    from vllm import LLM, SamplingParams

    vllm_internals.allow_float32_experts()
    try:
        llm = LLM(
            model=str(model),
            dtype="float32",
            enable_return_routed_experts=True,
            block_size=32,
            max_num_batched_tokens=16,
            **{
                **arguments["engine"],
                "enable_prefix_caching": True,
                "enforce_eager": not arguments["compiled"],
            },
        )
    except Exception as error:  # noqa: BLE001  (what it is, is the result)
        result["refused"] = f"{type(error).__name__}: {error}"
    else:
        sampling = SamplingParams(
            temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False
        )
        result["batches"] = [
            [
                {
                    "tokens": list(output.outputs[0].token_ids),
                    "dtype": str(output.outputs[0].routed_experts.dtype),
                    "experts": output.outputs[0].routed_experts.tolist(),  # [token][layer][k]
                    "cached": output.num_cached_tokens,
                }
                for output in llm.generate(
                    [{"prompt_token_ids": p} for p in batch], sampling, use_tqdm=False
                )
            ]
            for batch in BATCHES
        ]
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
