"""A tiny Llama target and an EAGLE-3 draft of it whose right drafts are known by construction.

The target walks a fixed cycle of 64 of its 256 tokens: its head scores token ``next(t)`` by the
embedding of ``t``, and its layers add noise that is small beside the embedding. The draft gets the
target's hidden state of token ``t`` and hands it through, and its own 64 rows score
``next(next(t))`` by the embedding of ``t``. So its own head drafts right, while the first 64 rows
of the target's head, read as if they were the draft's, do not.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCAB = 256
DRAFT_VOCAB = 64
HIDDEN = 128
LAYERS = 3
HEADS = 2
INTERMEDIATE = 128
NEW_TOKENS = 24

# The target token of each draft token: not the identity, and not the target's first 64.
DRAFT_TOKENS = [3 * i + 5 for i in range(DRAFT_VOCAB)]

LLAMA = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def _layer(prefix: str, random: torch.Generator, inputs: int = HIDDEN) -> dict[str, torch.Tensor]:
    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * 0.03

    return {
        f"{prefix}.self_attn.q_proj.weight": noise(HIDDEN, inputs),
        f"{prefix}.self_attn.k_proj.weight": noise(HIDDEN, inputs),
        f"{prefix}.self_attn.v_proj.weight": noise(HIDDEN, inputs),
        f"{prefix}.self_attn.o_proj.weight": noise(HIDDEN, HIDDEN),
        f"{prefix}.mlp.gate_proj.weight": noise(INTERMEDIATE, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": noise(INTERMEDIATE, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": noise(HIDDEN, INTERMEDIATE),
        f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def _save(folder: Path, config: dict[str, object], weights: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def save_models(root: Path) -> list[list[int]]:
    """Write ``root/target`` and ``root/draft``; return the prompts, as token ids."""
    random = torch.Generator().manual_seed(20)
    embeddings = torch.randn(VOCAB, HIDDEN, generator=random)
    cycle = [DRAFT_TOKENS[i] for i in torch.randperm(DRAFT_VOCAB, generator=random).tolist()]
    before = {token: cycle[i - 1] for i, token in enumerate(cycle)}

    head = torch.randn(VOCAB, HIDDEN, generator=random)
    for token in cycle:
        head[token] = embeddings[before[token]]
    target = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head.contiguous(),
    }
    for i in range(LAYERS):
        target |= _layer(f"model.layers.{i}", random)
    _save(
        root / "target",
        {**LLAMA, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS},
        target,
    )

    pass_first = torch.zeros(HIDDEN, 3 * HIDDEN)
    pass_first[:, :HIDDEN] = torch.eye(HIDDEN)
    draft = {
        "fc.weight": pass_first,
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.stack([embeddings[before[before[t]]] for t in DRAFT_TOKENS]),
        "d2t": torch.tensor(DRAFT_TOKENS) - torch.arange(DRAFT_VOCAB),
        **_layer("midlayer", random, inputs=2 * HIDDEN),
    }
    _save(
        root / "draft",
        {
            **LLAMA,
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "draft_vocab_size": DRAFT_VOCAB,
            "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        },
        draft,
    )
    return [[7, 90, *cycle[i : i + 2 + i]] for i in range(4)]
