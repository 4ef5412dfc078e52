"""Tiny models of these scenarios: configurations without weights, and a Nemotron-H checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

VOCAB = 1024
HIDDEN = 256
# Gives logits the spread of a trained head's: a standard deviation of about 3.
HEAD_STD = 0.2

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
# Its language model is built from `text_config`, as in most multimodal models.
MULTIMODAL = {
    "architectures": ["PaliGemmaForConditionalGeneration"],
    "model_type": "paligemma",
    "dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "projection_dim": HIDDEN,
    "image_token_index": VOCAB - 1,
    "text_config": {
        "model_type": "gemma",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "num_image_tokens": 4,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
        "projection_dim": HIDDEN,
    },
}
DRAFT = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "eagle_aux_hidden_state_layer_ids": [0],
    "draft_vocab_size": VOCAB,
}


def write_config(directory: str, name: str, config: dict) -> str:
    """Write a model that is a configuration and nothing else (for ``load_format="dummy"``)."""
    path = Path(directory, name)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def write_nemotron_h(directory: str) -> str:
    """Write a random bf16 Nemotron-H checkpoint: attention and MLP layers, which all CPUs run."""
    import torch
    from transformers import NemotronHConfig, NemotronHForCausalLM

    config = NemotronHConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        layers_block_type=["attention", "mlp", "attention", "mlp"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        intermediate_size=256,
        ssm_state_size=64,
        mamba_num_heads=8,
        mamba_head_dim=64,
        n_groups=2,
        conv_kernel=4,
        expand=2,
        chunk_size=64,
        n_routed_experts=8,
        n_shared_experts=1,
        moe_intermediate_size=128,
        moe_shared_expert_intermediate_size=128,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=1.0,
        moe_latent_size=None,
        use_mamba_kernels=False,
        initializer_range=0.1,
        rescale_prenorm_residual=False,
        tie_word_embeddings=False,
    )
    config.architectures = ["NemotronHForCausalLM"]
    torch.manual_seed(0)
    model = NemotronHForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        model.lm_head.weight.normal_(0, HEAD_STD)
    path = str(Path(directory, "nemotron-h"))
    model.save_pretrained(path)
    return path
