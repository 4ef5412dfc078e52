"""Scenario: real draft models built beside a real target, and vLLM's two ways of sharing a head.

Nothing generates here, so one process is enough for every draft class that a CPU can build. A case
shares by the V1 proposer's method, on a draft that vLLM's loader made, or by the V2 loaders. Then a
refit sends the draft a head. All weights are random (``load_format="dummy"``) but those of that
head, which are ones.

Argument: ``cases``, a list of the draft's class, the size of its vocabulary ("truncated", "equal")
and the runner ("V1", "V2").
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch

from tests.patches.eagle3_draft_lm_head.tiny_models import DRAFT_VOCAB, HIDDEN, LLAMA, VOCAB
from tests.support import vllm_internals

QWEN3 = {**LLAMA, "model_type": "qwen3", "attention_bias": False}
DEEPSEEK = {
    **LLAMA,
    # Not "deepseek_v3", which vLLM takes for DeepSeek's own MTP.
    "model_type": "deepseek_v2",
    "kv_lora_rank": 64,
    "q_lora_rank": None,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "first_k_dense_replace": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
GEMMA4 = {
    **LLAMA,
    "model_type": "gemma4_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "layer_types": ["full_attention"],
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 2,
    "sliding_window": 64,
    "global_head_dim": HIDDEN // 2,
    "hidden_size_per_layer_input": 0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
AUX = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
BLOCK = {
    "mask_token_id": 0,
    "target_layer_ids": [0, 1, 2],
    "dflash_config": {"mask_token_id": 0, "target_layer_ids": [0, 1, 2]},
    "block_size": 4,
    "markov_rank": 8,
}

# For each draft: its method, its configuration, and the field with its vocabulary's size.
DRAFTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "LlamaForCausalLMEagle3": ("eagle3", {**LLAMA, **AUX}, "draft_vocab_size"),
    "Eagle3Qwen3ForCausalLM": ("eagle3", {**QWEN3, **AUX}, "draft_vocab_size"),
    "Eagle3DeepseekV2ForCausalLM": ("eagle3", {**DEEPSEEK, **AUX}, "draft_vocab_size"),
    "DFlashDraftModel": ("dflash", {**QWEN3, **BLOCK}, "draft_vocab_size"),
    "Qwen3DSparkModel": ("dspark", {**QWEN3, **BLOCK}, "draft_vocab_size"),
    "Gemma4DSparkModel": ("dspark", {**GEMMA4, **BLOCK}, "vocab_size"),
    # EAGLE-1 builds no head, and must get the target's.
    "EagleLlamaForCausalLM": ("eagle", LLAMA, "draft_vocab_size"),
}
TOKENS = {"truncated": DRAFT_VOCAB, "equal": VOCAB}


def configuration(architecture: str, tokens: int, root: Path) -> Any:
    method, config, size = DRAFTS[architecture]
    target, draft = root / "target", root / f"{architecture}-{tokens}"
    for folder, content in (
        (target, {**LLAMA, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3}),
        (draft, {**config, "architectures": [architecture], "num_hidden_layers": 1, size: tokens}),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(content))
    speculative = {"method": method, "model": str(draft), "num_speculative_tokens": 3}
    # Only the V2 runner supports DSpark, and its configuration needs Triton.
    given = {} if method == "dspark" else {"speculative_config": speculative}
    made = vllm_internals.configuration(
        target,
        dtype="bfloat16",
        load_format="dummy",
        **{**json.loads(sys.argv[1])["engine"], "max_model_len": 128},
        **given,
    )
    if method == "dspark":
        made.speculative_config = vllm_internals.SpeculativeConfig(
            **speculative,
            target_model_config=made.model_config,
            target_parallel_config=made.parallel_config,
        )
    return made


def build(config: Any) -> Any:
    # Gemma 4's draft numbers its layers as the target does.
    prefix = "draft" if config.speculative_config.method == "dspark" else ""
    draft_config = config.speculative_config.draft_model_config
    return vllm_internals.load_model(config, draft_config, prefix)


def share_v1(target: Any, config: Any) -> Any:
    """Share by the V1 proposer's own method."""
    draft = build(config)
    vllm_internals.share_head_v1(draft, target, config)
    return draft


def share_v2(target: Any, config: Any) -> Any:
    """Share by the V2 runner's own loader; for DSpark, which it refuses here, by its decision."""
    method = config.speculative_config.method
    if method != "dspark":
        return vllm_internals.load_draft_v2(method, target, config)
    draft = build(config)
    vllm_internals.share_head_v2(draft, target)
    return draft


SHARE = {"V1": share_v1, "V2": share_v2}


def observe(architecture: str, tokens: int, share: Any) -> dict[str, Any]:
    config = configuration(architecture, tokens, Path("models").absolute())
    with vllm_internals.set_current_vllm_config(config):
        target = vllm_internals.load_model(config)
        before = target.lm_head.weight.clone()
        draft = share(target, config)
        seen: dict[str, Any] = {
            "class": type(draft).__name__,
            "is_the_targets": draft.lm_head is target.lm_head,
            "tokens": draft.lm_head.org_vocab_size,
        }
        weights = {"lm_head.weight": torch.ones(tokens, HIDDEN)}
        if tokens != VOCAB:
            weights["d2t"] = torch.zeros(tokens, dtype=torch.long)
        try:
            draft.load_weights(iter(weights.items()))
        except Exception as error:  # noqa: BLE001  # what is raised is what the test is about
            seen["refused"] = type(error).__name__
            seen["message"] = str(error)
        seen["target_untouched"] = torch.equal(target.lm_head.weight, before)
        seen["has_refit"] = bool((draft.lm_head.weight[:tokens] == 1).all())
    return seen


def main() -> dict[str, Any]:
    first = configuration("LlamaForCausalLMEagle3", VOCAB, Path("models"))
    vllm_internals.start_parallel_groups(first)
    result: dict[str, Any] = {}
    for architecture, size, runner in json.loads(sys.argv[1])["cases"]:
        case = f"{architecture} {size} {runner}"
        try:
            result[case] = observe(architecture, TOKENS[size], SHARE[runner])
        except Exception as error:  # noqa: BLE001  # not every draft can be built here
            result[case] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        gc.collect()
    return result


if __name__ == "__main__":
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(main()))
