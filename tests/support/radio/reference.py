"""transformers' RADIO as the oracle, and its weights under the names of every format.

The tables of names come from the sources of the formats, not from the overlay's table.
"""

from __future__ import annotations

import re

import torch
from transformers import RadioConfig, RadioModel

HIDDEN = 384  # vit_small_patch16_224
HEADS = 6
PATCH = 16
IMAGE = 64
MAX_IMAGE = 128
CLASS_TOKENS, REGISTERS = 3, 7
FORMATS = ("legacy", "remote", "transformers", "hybrid")

# vLLM's arguments for the same model, beside the timm name.
ARGS = {
    "cpe_max_size": MAX_IMAGE,
    "register_multiple": CLASS_TOKENS + REGISTERS,
    "cls_token_per_teacher": True,
    "teachers": [{"name": "a"}, {"name": "b"}, {"name": "c", "use_summary": False}],
}


def config(layers):
    return RadioConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        patch_size=PATCH,
        image_size=IMAGE,
        max_img_size=MAX_IMAGE,
        num_cls_tokens=CLASS_TOKENS,
        num_registers=REGISTERS,
        video_temporal_patch_size=2,
        summary_idxs=[0, 1],
    )


def randomize(module, seed):
    """Give every parameter a value that matters: none is zero, one, or like another."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.2 * values)
            elif "lambda1" in name:
                parameter.copy_(0.5 + 0.1 * values)
            elif parameter.ndim == 2 and "token" not in name:
                parameter.copy_(values * parameter.shape[1] ** -0.5)
            else:
                parameter.copy_(0.3 * values)
    return module


def tower(layers, seed, device="cpu", dtype=torch.float32):
    model = randomize(RadioModel(config(layers)), seed).to(device, dtype).eval()
    model.make_preprocessor_external()  # vLLM normalises pixels in its processor
    return model


def weights(model):
    """The state dict, copied, without the index buffer."""
    return {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if name != "summary_idxs"
    }


_REMOTE = (
    (r"attention\.q_proj", "attention.attention.query"),
    (r"attention\.k_proj", "attention.attention.key"),
    (r"attention\.v_proj", "attention.attention.value"),
    (r"attention\.o_proj", "attention.output.dense"),
)
_TIMM = (
    (r"^embeddings\.patch_projection", "model.patch_generator.embedder"),
    (r"^embeddings\.video_patch_projection", "model.patch_generator.video_embedder"),
    (r"^embeddings\.position_embedding", "model.patch_generator.pos_embed"),
    (r"^embeddings\.cls_register_token", "model.patch_generator.cls_token.token"),
    (r"^encoder\.layer\.", "model.blocks."),
    (r"attention\.o_proj", "attn.proj"),
    (r"attention\.q_proj", "attn.qkv"),
    (r"layer_scale(\d)\.lambda1", r"ls\1"),
)


def _substitute(name, table):
    for pattern, text in table:
        name = re.sub(pattern, text, name)
    return name


def fused(state):
    """timm's parameters: one qkv, in the order q, k, v, and LayerScale by its short name."""
    result = {}
    for name in state:
        if ".k_proj." in name or ".v_proj." in name:
            continue
        parts = [name.replace(".q_proj.", f".{x}_proj.") for x in "qkv"]
        result[_substitute(name, _TIMM)] = (
            torch.cat([state[part] for part in parts]) if ".q_proj." in name else state[name]
        )
    return result


def stream(state, fmt, scale="{}"):
    """The weights as a list of pairs in a format, with the buffers that vLLM does not use.

    ``scale`` is the spelling of a legacy LayerScale: ``{}.gamma`` for ``ls1.gamma``.
    """
    if fmt == "legacy":
        pairs = [
            ("radio_model." + re.sub(r"\b(ls\d)$", lambda m: scale.format(m[1]), name), value)
            for name, value in fused(state).items()
        ]
    elif fmt == "remote":
        pairs = [(_substitute(name, _REMOTE), value) for name, value in state.items()]
    elif fmt == "transformers":
        pairs = list(state.items())
    else:  # as remote within the attention, and in LayerScale's name
        table = (*_REMOTE[:3], *_TIMM[:-2])
        pairs = [("radio_model." + _substitute(n, table), value) for n, value in state.items()]
    prefix = "radio_model." if fmt in ("legacy", "hybrid") else ""
    return [
        (prefix + "input_conditioner.norm_mean", torch.zeros(3, 1, 1)),
        ("summary_idxs", torch.tensor([0, 1])),
        *pairs,
    ]


def batches(pairs, limit):
    """Cut a stream as a trainer does: batches of at most ``limit`` bytes, or of one tensor."""
    batch, size = [], 0
    for name, value in pairs:
        if batch and size + value.nbytes > limit:
            yield batch
            batch, size = [], 0
        batch.append((name, value))
        size += value.nbytes
    if batch:
        yield batch


def in_vllm(state):
    """What vLLM's parameters must hold, by its names."""
    return {
        name.replace("model.blocks.", "model.encoder.layers."): value
        for name, value in fused(state).items()
    }


SIZES = ((64, 64), (32, 64), (64, 96))


def inputs(device, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def pixels(*shape):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    return {
        "image": pixels(3, 3, IMAGE, IMAGE),
        "video": pixels(6, 3, IMAGE, IMAGE),
        "packed": pixels(sum(h * w for h, w in SIZES) // PATCH**2, 3 * PATCH**2),
    }


def grid(device="cpu"):
    return torch.tensor([[h // PATCH, w // PATCH] for h, w in SIZES], device=device)


def tubelets(video):
    """Stack every two frames on the channels."""
    frames, channels, height, width = video.shape
    return video.reshape(frames // 2, 2 * channels, height, width)


@torch.no_grad()
def features(model, given):
    """Patch features (.., hidden) for dense images, video tubelets and packed images."""
    return {
        "image": model(given["image"]).features,
        "video": model(tubelets(given["video"])).features,
        "packed": model(given["packed"], image_grid_hw=grid(given["packed"].device)).features,
    }


@torch.no_grad()
def vllm_features(model, given):
    """The same from vLLM's RadioModel."""
    packed = model(given["packed"][None], imgs_sizes=list(SIZES))[1]
    return {
        "image": model(given["image"])[1],
        "video": model(given["video"], num_frames=len(given["video"]))[1],
        "packed": packed[0],
    }


def compare(ours, oracle):
    """For each input: whether the features are the same, and the greatest difference."""
    return {
        key: {
            "equal": torch.equal(ours[key], oracle[key]),
            "difference": (ours[key].double() - oracle[key].double()).abs().max().item(),
            "scale": oracle[key].double().std().item(),
        }
        for key in oracle
    }
