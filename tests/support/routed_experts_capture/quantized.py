"""Scenario: routed experts of a tiny quantized MoE, before and after a refit, against transformers.

Arguments: ``family`` and ``form`` as in ``quantized_models.py``; ``engine``: arguments of ``LLM``.
The environment says whether the engine is a process of its own, as it is for users.

Result: ``kernels``, the classes of the MoE kernels that the engine holds, and for ``before`` and
``after``, with other prompts each, one entry a prompt: ``experts`` as the engine returns them,
``[token][layer][k]``; ``reference``, what transformers routes the same tokens to; or ``refused``
when the engine does not start. If the refit fails, ``refit`` has the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NEW_TOKENS = 8
# Longer and shorter than the steps that are captured in CUDA graphs.
LENGTHS = (41, 17, 5, 1)


def prompts(seed: int) -> list[list[int]]:
    """Return prompts of ids that no other prompt of the same place has at the same position."""
    return [
        [(seed * 101 + place * 59 + i * 7) % 256 for i in range(length)]
        for place, length in enumerate(LENGTHS)
    ]


def models(**request) -> str:
    command = [sys.executable, HERE / "quantized_models.py", json.dumps(request)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    arguments = json.loads(sys.argv[1])
    target = Path(os.environ["SCENARIO_RESULT"])
    first, second = (Path.cwd() / name for name in ("first", "second"))
    kind = {name: arguments[name] for name in ("family", "form")}
    models(
        write=[
            {"directory": str(model), "seed": seed, **kind}
            for seed, model in enumerate((first, second))
        ]
    )

    from vllm import LLM, SamplingParams

    try:
        llm = LLM(
            model=str(first),
            dtype="bfloat16",
            enable_return_routed_experts=True,
            worker_extension_cls="tests.support.routed_experts_capture.quantized_probe.QuantizedProbe",
            **{**arguments["engine"], "max_num_seqs": len(LENGTHS)},
        )
    except Exception as error:  # noqa: BLE001  (what it is, is the result)
        target.write_text(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
        return
    sampling = SamplingParams(
        temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False
    )

    sequences: dict[Path, list[list[int]]] = {}

    def ask(seed: int, model: Path) -> list[dict]:
        asked = prompts(seed)
        outputs = llm.generate([{"prompt_token_ids": p} for p in asked], sampling, use_tqdm=False)
        answers = [output.outputs[0] for output in outputs]
        # The last token was no input.
        sequences[model] = [
            [*p, *answer.token_ids[:-1]] for p, answer in zip(asked, answers, strict=True)
        ]
        return [{"experts": answer.routed_experts.tolist()} for answer in answers]

    result = {"kernels": llm.collective_rpc("moe_kernels")[0], "before": ask(1, first)}
    try:
        llm.collective_rpc("reload_weights", kwargs={"weights_path": str(second)})
        result["after"] = ask(2, second)
    except Exception as error:  # noqa: BLE001  (what came before is a result of its own)
        result["refit"] = f"{type(error).__name__}: {error}"
    asked = [{"directory": str(m), "sequences": s} for m, s in sequences.items()]
    followed = json.loads(models(follow=asked).splitlines()[-1])
    for when, references in zip(("before", "after"), followed, strict=False):
        for answer, reference in zip(result.get(when, ()), references, strict=True):
            answer["reference"] = reference
    target.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
