"""Write a tiny random GLM-4 MoE checkpoint, and say what transformers makes of it.

Arguments: one JSON object with ``model`` (directory), ``seed``, and optionally ``batches`` (lists
of prompts of token ids) and ``new_tokens``. Prints, as the last line, one JSON list: for every
batch and prompt the greedy tokens and the expert ids of every token but the last, as
``[layer of the model][token] -> sorted ids`` (empty for the dense layer).

It does not import vLLM, and runs in a process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

LAYERS = 4
DENSE = 1
CONFIG = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "first_k_dense_replace": DENSE,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "num_mtp_layers": 0,
    "num_nextn_predict_layers": 0,
    "use_qk_norm": True,
}


def save(target: Path, seed: int) -> Glm4MoeForCausalLM:
    """Write the checkpoint; return what transformers reads back from it."""
    torch.manual_seed(seed)
    model = Glm4MoeForCausalLM(Glm4MoeConfig(**CONFIG)).to(torch.float32).eval()
    for layer in model.model.layers[DENSE:]:
        # Sigmoid scores are between 0 and 1, so a bias of this size changes many choices, not all.
        layer.mlp.gate.e_score_correction_bias.copy_(torch.randn(CONFIG["n_routed_experts"]) * 0.2)
    model.save_pretrained(target)
    return Glm4MoeForCausalLM.from_pretrained(target, dtype=torch.float32).eval()


@torch.inference_mode()
def follow(model: Glm4MoeForCausalLM, prompt: list[int], new_tokens: int) -> dict[str, list]:
    """Greedy tokens after the prompt, and the experts of every token that was an input."""
    experts: dict[int, list[list[int]]] = {}

    def note(layer: int):
        def hook(_module, arguments):
            experts[layer] = [sorted(row) for row in arguments[1].tolist()]

        return hook

    hooks = [
        model.model.layers[layer].mlp.experts.register_forward_pre_hook(note(layer))
        for layer in range(DENSE, LAYERS)
    ]
    tokens = list(prompt)
    for _ in range(new_tokens):
        # No cache: the last pass gives the experts of every token at once.
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        tokens.append(int(logits.argmax()))
    for hook in hooks:
        hook.remove()
    return {
        "tokens": tokens[len(prompt) :],
        "experts": [experts.get(layer, []) for layer in range(LAYERS)],
    }


def main() -> None:
    arguments = json.loads(sys.argv[1])
    model = save(Path(arguments["model"]), arguments["seed"])
    answers = [
        [follow(model, prompt, arguments["new_tokens"]) for prompt in batch]
        for batch in arguments.get("batches", [])
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
