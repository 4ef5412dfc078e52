"""A model of a few thousand weights, and what transformers generates with it."""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

PROMPTS = [[3, 14, 15, 92, 65], [35, 89, 79, 32, 38, 46, 26]]


def main(given):
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        initializer_range=0.4,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.save_pretrained(given["model"])
    tokens = []
    for prompt in PROMPTS:
        sequence = torch.tensor([prompt])
        with torch.inference_mode():
            for _ in range(given["tokens"]):
                following = model(sequence).logits[:, -1].argmax(-1, keepdim=True)
                sequence = torch.cat([sequence, following], dim=1)
        tokens.append(sequence[0, len(prompt) :].tolist())
    return {"prompts": PROMPTS, "tokens": tokens}


if __name__ == "__main__":
    result = main(json.loads(sys.argv[1]))
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))
