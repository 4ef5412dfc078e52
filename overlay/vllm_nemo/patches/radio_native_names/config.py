"""A vision config in transformers' own format, made into what vLLM's Nemotron VL reads.

vLLM reads the tower's description from ``vision_config.args``: the arguments of the timm model that
RADIO was trained as. transformers 5.24 and ModelOpt write a flat ``vision_config`` instead, with
``hidden_size``, ``num_cls_tokens``, ``max_img_size`` and so on. Stock vLLM then ends with
``AttributeError: ... has no attribute 'args'`` before any weight is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# What vLLM reads from the whole model's config, and where transformers writes it.
_MOVED = {
    "patch_size": ("vision_config", "patch_size"),
    "norm_mean": ("vision_config", "norm_mean"),
    "norm_std": ("vision_config", "norm_std"),
    "vit_hidden_size": ("config", "vision_hidden_size"),
}
_NEEDED = (
    "force_image_size",
    "downsample_ratio",
    "template",
    "ps_version",
    "image_tag_type",
    "projector_hidden_size",
    "use_thumbnail",
)
# Further arguments that a flat config may have, under the same name.
_SAME = (
    "min_num_patches",
    "max_num_patches",
    "qkv_bias",
    "qk_normalization",
    "hidden_act",
    "layer_norm_eps",
    "initializer_factor",
)


def complete_config(config: PretrainedConfig) -> None:
    """Add what vLLM reads to a Nemotron VL config with a flat ``vision_config``.

    Args:
        config: The HF configuration, changed in place. One with ``vision_config.args`` is left as
            it is, so a second call changes nothing.

    Raises:
        ValueError: if vLLM cannot build the tower, or the config lacks values that cannot be
            derived. The message says which, and what to do.
    """
    vision = config.vision_config
    if getattr(vision, "args", None) is not None:
        return
    args = _args(vision)
    missing = [name for name in _NEEDED if getattr(config, name, None) is None]
    sources = {"config": config, "vision_config": vision}
    for name, (source, theirs) in _MOVED.items():
        if getattr(config, name, None) is None:
            value = getattr(sources[source], theirs, None)
            if value is None:
                missing.append(name)
            else:
                setattr(config, name, value)
    if missing:
        raise ValueError(
            "vllm-nemo (patch radio-native-names): the config has a vision_config in "
            "transformers' flat format, but lacks what vLLM's Nemotron VL reads: "
            f"{', '.join(missing)}. Add them to config.json or to hf_overrides, with the values of "
            "the released checkpoint that the model comes from."
        )
    if getattr(vision, "preferred_resolution", None) is None:
        size = getattr(vision, "image_size", 224)
        vision.preferred_resolution = list(size) if isinstance(size, list | tuple) else [size] * 2
    if getattr(vision, "video_temporal_patch_size", None) is None:
        vision.video_temporal_patch_size = 1
    # Set last: it marks the config as complete.
    vision.args = args


def _args(vision: PretrainedConfig) -> dict[str, Any]:
    """Express a flat vision config as the arguments that vLLM's RadioConfig takes."""
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_img_size")
    lacking = [
        name
        for name in (*needed, "num_cls_tokens", "num_registers", "summary_idxs")
        if getattr(vision, name, None) is None
    ]
    if lacking:
        raise ValueError(
            "vllm-nemo (patch radio-native-names): the vision_config has neither 'args', as "
            "released Nemotron VL checkpoints do, nor all fields of transformers' RadioConfig. It "
            f"lacks {', '.join(lacking)}. Take the vision_config of the released checkpoint."
        )
    if not vision.num_cls_tokens:
        raise ValueError(
            "vllm-nemo (patch radio-native-names): vLLM cannot build a RADIO tower without class "
            "tokens (num_cls_tokens is 0 in the vision_config)."
        )
    args: dict[str, Any] = {
        "model": _model_name(vision),
        "cpe_max_size": vision.max_img_size,
        "cls_token_per_teacher": True,
        "teachers": [
            {"name": f"class token {index}", "use_summary": index in vision.summary_idxs}
            for index in range(vision.num_cls_tokens)
        ],
        # vLLM pads class tokens with registers to a multiple of this.
        "register_multiple": (
            vision.num_cls_tokens + vision.num_registers if vision.num_registers else None
        ),
    }
    if getattr(vision, "layerscale_value", None) is not None:
        args["initializer_factor"] = vision.layerscale_value
    for name in _SAME:
        if getattr(vision, name, None) is not None:
            args[name] = getattr(vision, name)
    return args


def _model_name(vision: PretrainedConfig) -> str:
    """Find the timm name of the transformer that a flat config describes."""
    from vllm.transformers_utils.configs.radio import VIT_TIMM_DIM_BY_NAME

    width = vision.hidden_size
    inner = getattr(vision, "intermediate_size", None)
    if inner is None:
        inner = int(width * getattr(vision, "mlp_ratio", 4.0))
    described = (width, vision.num_hidden_layers, vision.num_attention_heads, inner)
    plain = not getattr(vision, "use_swiglu_ffn", False) and getattr(vision, "num_channels", 3) == 3
    for name, dimensions in VIT_TIMM_DIM_BY_NAME.items():
        if plain and tuple(dimensions) == described:
            return str(name)
    raise ValueError(
        "vllm-nemo (patch radio-native-names): vLLM cannot build the tower that the vision_config "
        f"describes: (hidden size, layers, heads, MLP size) is {described}"
        + ("" if plain else ", with SwiGLU or other than 3 channels")
        + f". It can build one of {dict(VIT_TIMM_DIM_BY_NAME)}."
    )
