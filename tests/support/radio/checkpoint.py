"""A directory with a tiny Nemotron VL model: config and tokenizer, no weights.

The vision tower is vit_small, the smallest that vLLM knows by name, with all of its 12 layers.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.radio import reference

TOWER_LAYERS = 12
WIDTH = 64  # of the language model and the projector

_CONFIGURATION = """
from transformers import PretrainedConfig
from tests.support.vllm_internals import NemotronHConfig


class TinyVisionConfig(PretrainedConfig):
    model_type = "tiny_radio"


class TinyConfig(PretrainedConfig):
    model_type = "tiny_nemotron_vl"
    sub_configs = {"vision_config": TinyVisionConfig, "text_config": NemotronHConfig}

    def __init__(self, vision_config=None, text_config=None, **others):
        if not isinstance(vision_config, PretrainedConfig):
            vision_config = TinyVisionConfig(**(vision_config or {}))
        if not isinstance(text_config, PretrainedConfig):
            text_config = NemotronHConfig(**(text_config or {}))
        self.vision_config, self.text_config = vision_config, text_config
        super().__init__(**others)
"""

_TEXT = {
    "model_type": "nemotron_h",
    "vocab_size": 512,
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "hybrid_override_pattern": "*-",
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "ssm_state_size": 16,
    "mamba_num_heads": 8,
    "mamba_n_groups": 2,
    "mamba_head_dim": 16,
    "expand": 2,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 16,
    "dtype": "bfloat16",
}

_TOP = {
    "architectures": ["NemotronH_Nano_VL_V2"],
    "model_type": "tiny_nemotron_vl",
    "auto_map": {"AutoConfig": "configuration_tiny.TinyConfig"},
    "dtype": "bfloat16",
    "force_image_size": reference.IMAGE,
    "patch_size": reference.PATCH,
    "downsample_ratio": 0.5,
    "template": "none",
    "ps_version": "v2",
    "image_tag_type": "internvl",
    "projector_hidden_size": WIDTH,
    "vit_hidden_size": reference.HIDDEN,
    "norm_mean": [0.48, 0.457, 0.408],
    "norm_std": [0.268, 0.261, 0.275],
    "use_thumbnail": False,
    "video_pruning_rate": 0.0,
}

LEGACY_VISION = {
    "args": {"model": "vit_small_patch16_224", **reference.ARGS},
    "patch_size": reference.PATCH,
    "preferred_resolution": [reference.IMAGE, reference.IMAGE],
    "video_temporal_patch_size": 2,
    "separate_video_embedder": True,
    "layer_norm_eps": 1e-6,
}


def flat_vision():
    """The vision config as transformers saves it."""
    config = reference.config(TOWER_LAYERS).to_dict()
    return {name: value for name, value in config.items() if name != "model_type"}


def write(directory, *, mtp_layers, vision=None, without=()):
    """Write the model; returns the directory."""
    directory = Path(directory)
    directory.mkdir(parents=True)
    (directory / "configuration_tiny.py").write_text(_CONFIGURATION)
    config = {
        **{name: value for name, value in _TOP.items() if name not in without},
        "text_config": {**_TEXT, "num_nextn_predict_layers": mtp_layers},
        "vision_config": vision or LEGACY_VISION,
    }
    (directory / "config.json").write_text(json.dumps(config))
    _write_tokenizer(directory)
    return str(directory)


def _write_tokenizer(directory):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>", "<image>", "<video>", "<img>", "</img>"]
    special += ["<so_start>", "<so_end>", "<so_embedding>"]
    unknown, begin, end = special[:3]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(special + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        bos_token=begin,
        eos_token=end,
        pad_token=unknown,
    ).save_pretrained(directory)
