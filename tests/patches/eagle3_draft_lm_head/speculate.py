"""Scenario: speculate with a dummy-loaded EAGLE-3 draft, then send the weights, as a refit does.

The result holds what was observed. The test says what is expected.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# In one process, so that the script can look at the models.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
from safetensors.torch import load_file

from tests.patches.eagle3_draft_lm_head.tiny_models import DRAFT_TOKENS, NEW_TOKENS, save_models
from tests.support import vllm_internals

ARGUMENTS = json.loads(sys.argv[1])


def reference(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of transformers' own model."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [
            model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
            for prompt in prompts
        ]


def reload_draft(worker: Any, weights: dict[str, torch.Tensor]) -> None:
    """Send weights to the draft by vLLM's own reloading, which also repacks them for the CPU."""
    draft_config = worker.vllm_config.speculative_config.draft_model_config
    with vllm_internals.refit(vllm_internals.draft_of(worker), draft_config):
        vllm_internals.draft_of(worker).load_weights(iter(weights.items()))


def main() -> dict[str, Any]:
    root = Path("models").absolute()
    prompts = save_models(root)
    result: dict[str, Any] = {"reference": reference(root / "target", prompts)}
    target_weights = load_file(root / "target" / "model.safetensors")
    draft_weights = load_file(root / "draft" / "model.safetensors")

    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(root / "target"),
        load_format="dummy",
        speculative_config={
            "method": "eagle3",
            "model": str(root / "draft"),
            "num_speculative_tokens": 1,
        },
        dtype="float32",
        disable_log_stats=False,
        **{**ARGUMENTS["engine"], "max_model_len": 128},
    )
    sampling = SamplingParams(
        temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False
    )

    def counted(name: str) -> int:
        return sum(m.value for m in llm.get_metrics() if m.name == f"vllm:spec_decode_{name}")

    def generate() -> dict[str, Any]:
        drafted, accepted = counted("num_draft_tokens"), counted("num_accepted_tokens")
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], sampling)
        return {
            "tokens": [list(o.outputs[0].token_ids) for o in outputs],
            "drafted": counted("num_draft_tokens") - drafted,
            "accepted": counted("num_accepted_tokens") - accepted,
        }

    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def look(worker: Any) -> dict[str, Any]:
        target, draft = worker.model_runner.model, vllm_internals.draft_of(worker)
        return {
            "is_the_targets": draft.lm_head is target.lm_head,
            "same_memory": draft.lm_head.weight.data_ptr() == target.lm_head.weight.data_ptr(),
            "shape": list(draft.lm_head.weight.shape),
            "target_shape": list(target.lm_head.weight.shape),
            "target_head_as_saved": torch.equal(
                target.lm_head.weight, target_weights["lm_head.weight"]
            ),
            "draft_head_as_saved": draft.lm_head.weight.shape
            == draft_weights["lm_head.weight"].shape
            and torch.equal(draft.lm_head.weight, draft_weights["lm_head.weight"]),
        }

    def listen(worker: Any) -> None:
        def hook(_module: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            seen.append((inputs[1].clone(), output.clone()))

        vllm_internals.draft_of(worker).logits_processor.register_forward_hook(hook)

    def on_worker(function: Any, *args: Any) -> Any:
        return llm.collective_rpc(function, args=args)[0]

    on_worker(listen)
    result["loaded"] = on_worker(look)

    on_worker(lambda worker: worker.model_runner.reload_weights(iter(target_weights.items())))
    body = {name: w for name, w in draft_weights.items() if name != "lm_head.weight"}
    on_worker(reload_draft, body)
    result["body_sent"] = {**on_worker(look), **generate()}

    head = draft_weights["lm_head.weight"]
    try:
        on_worker(reload_draft, {"lm_head.weight": head})
    except Exception as error:  # noqa: BLE001  # what is raised is what the test is about
        result["refused"] = type(error).__name__
    seen.clear()
    result["head_sent"] = {**on_worker(look), **generate()}

    # The oracle: the saved head times the hidden states that the draft gave it, in float64.
    hidden = torch.cat([h for h, _ in seen]).double()
    logits = torch.cat([y for _, y in seen]).double()
    expected = hidden @ head.double().T
    result["drafts"] = {
        "count": len(hidden),
        "width": logits.shape[-1],
        "max_abs_logit": expected.abs().max().item(),
        "max_abs_error": (logits - expected).abs().max().item(),
        "same_token": (logits.argmax(-1) == expected.argmax(-1)).double().mean().item(),
        "tokens_in_draft_vocabulary": all(
            t in DRAFT_TOKENS for tokens in result["reference"] for t in tokens
        ),
    }
    return result


if __name__ == "__main__":
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(main()))
