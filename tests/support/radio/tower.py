"""Scenario: vLLM's RADIO towers, refitted in many ways, against transformers'.

``device``: where. ``dtypes``: for the comparison of formats; the rest is in fp32.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from tests.support.radio import reference, vllm_tower
from tests.support.radio.reference import FORMATS, stream

arguments = json.loads(sys.argv[1])
DEVICE = arguments["device"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# The first import of vLLM.
config = vllm_tower.start(DEVICE)
log = vllm_tower.Log()


def make(dtype=torch.float32, **options):
    return vllm_tower.make(config, DEVICE, dtype, **options)


_answers = {}


def oracle_features(state, dtype):
    """What transformers computes of the inputs with these weights."""
    if (id(state), dtype) not in _answers:
        theirs = reference.tower(vllm_tower.LAYERS, 0)
        theirs.load_state_dict({**theirs.state_dict(), **state})
        theirs = theirs.to(DEVICE, dtype)
        # Kept with the state, so that no other object gets its id.
        answer = reference.features(theirs, reference.inputs(DEVICE, dtype)), state
        _answers[id(state), dtype] = answer
    return _answers[id(state), dtype][0]


def judge(model, state):
    """Compare a tower with transformers' of the same weights."""
    dtype = next(model.parameters()).dtype
    ours = reference.vllm_features(model, reference.inputs(DEVICE, dtype))
    return {
        "right": vllm_tower.right(model, state),
        "features": reference.compare(ours, oracle_features(state, dtype)),
        "warnings": log.take(),
    }


FIRST = reference.weights(reference.tower(vllm_tower.LAYERS, 1))
SECOND = reference.weights(reference.tower(vllm_tower.LAYERS, 2))


def on_device(state):
    return {name: value.to(DEVICE) for name, value in state.items()}


FIRST, SECOND = on_device(FIRST), on_device(SECOND)


def is_scale(name):
    return "layer_scale" in name


def folded(state, factor=1.0):
    """A state whose LayerScale is the constant that a model without one has."""
    return {
        name: torch.full_like(value, factor) if is_scale(name) else value
        for name, value in state.items()
    }


def without_scales(state, fmt="transformers"):
    return stream({n: v for n, v in state.items() if not is_scale(n)}, fmt)


def formats():
    """Every format, batch by batch, after a dummy start."""
    result = {}
    for dtype in arguments["dtypes"]:
        for fmt in FORMATS:
            model = make(DTYPES[dtype])
            keys = list(model.state_dict())
            batches = len(list(reference.batches(stream(FIRST, fmt), 300_000)))
            loaded = vllm_tower.load(model, stream(FIRST, fmt))
            result[f"{dtype} {fmt}"] = {
                **judge(model, FIRST),
                "loaded": len(loaded),
                "batches": batches,
                "keys unchanged": list(model.state_dict()) == keys,
            }
    return result


def scales():
    """LayerScale in all its spellings and orders."""
    result = {}
    for spelling in ("{}", "{}.grandma", "{}.gamma", "{}.lambda1"):
        model = make()
        vllm_tower.load(model, stream(FIRST, "legacy", spelling))
        result[spelling.format("ls1")] = judge(model, FIRST)

    pairs = stream(FIRST, "legacy")
    of_scale = [pair for pair in pairs if ".ls" in pair[0]]
    others = [pair for pair in pairs if ".ls" not in pair[0]]
    for name, order in {"first": of_scale + others, "last": others + of_scale}.items():
        model = make()
        vllm_tower.load(model, order, limit=1)  # a batch a tensor
        result[name] = judge(model, FIRST)

    model = make()
    model.load_weights(dict(pairs))
    result["as a dict"] = judge(model, FIRST)

    model = make()
    loaded = model.load_weights([])
    values = torch.cat(
        [p.detach() for n, p in model.named_parameters() if n.endswith((".ls1", ".ls2"))]
    )
    result["nothing offered"] = {
        "loaded": sorted(loaded),
        "values": [values.min().item(), values.max().item()],
    }

    for factor in (1.0, 0.5):
        model = make(initializer_factor=factor)
        vllm_tower.load(model, without_scales(FIRST, "legacy"))
        result[f"folded, factor {factor}"] = judge(model, folded(FIRST, factor))
        vllm_tower.noise(model)
        vllm_tower.load(model, without_scales(SECOND, "legacy"))
        result[f"folded, factor {factor}, awake again"] = judge(model, folded(SECOND, factor))

    model = make()
    vllm_tower.load(model, pairs)
    part = [pair for pair in stream(SECOND, "legacy") if ".attn." in pair[0]]
    vllm_tower.load(model, part)
    mixed = {n: SECOND[n] if ".attention." in n else v for n, v in FIRST.items()}
    result["partial"] = judge(model, mixed)

    model = make()
    vllm_tower.load(model, [pair for pair in pairs if not pair[0].endswith(".ls2")])
    only_first = {n: torch.ones_like(v) if "scale2" in n else v for n, v in FIRST.items()}
    result["only ls1"] = judge(model, only_first)
    return result


def layerwise():
    """vLLM's own refit: parameters on meta, weight loaders that wait for whole modules."""
    result = {}

    def refit(model, pairs, limit=300_000):
        with vllm_tower.layerwise(model, DEVICE):
            vllm_tower.load(model, pairs, limit)

    for fmt in FORMATS:
        model = make()
        refit(model, stream(FIRST, fmt))
        result[fmt] = judge(model, FIRST)
        refit(model, stream(SECOND, fmt)[::-1], limit=1)
        result[f"{fmt}, again, reversed"] = judge(model, SECOND)

    model = make()
    refit(model, without_scales(FIRST, "legacy"))
    result["folded"] = judge(model, folded(FIRST))

    model = make()
    refit(model, stream(FIRST, "legacy"))
    part = [p for p in stream(SECOND, "legacy") if p[0].endswith(".ls1")]
    refit(model, part)
    mixed = {n: SECOND[n] if "scale1" in n else v for n, v in FIRST.items()}
    result["only ls1"] = judge(model, mixed)
    refit(model, [p for p in stream(SECOND, "legacy") if p[0].endswith(".ls2")])
    mixed = {n: SECOND[n] if is_scale(n) else v for n, v in FIRST.items()}
    result["then ls2"] = judge(model, mixed)
    vllm_tower.load(model, stream(FIRST, "hybrid"))
    result["direct calls after a partial one"] = judge(model, FIRST)

    model = make()
    vllm_tower.load(model, stream(FIRST, "transformers"))
    refit(model, stream(SECOND, "remote"))
    result["after direct calls"] = judge(model, SECOND)
    vllm_tower.load(model, stream(FIRST, "hybrid"))
    result["before direct calls"] = judge(model, FIRST)
    return result


def names():
    """Names that fit nothing, and those that are not the tower's."""
    result = {}
    value = torch.zeros(1, device=DEVICE)
    model = make()
    strange = [
        ("radio_model.model.blocks.0.attn.qkv.weight_scale", value),
        ("encoder.layer.1.attention.query.weight", value),
        ("encoder.layer.7.norm1.weight", value),  # cut off by num_hidden_layers_override
        ("encoder.layer.12.norm1.weight", value),  # not in vit_small
        ("embeddings.mask_token", value),
        ("radio_model.model.norm.weight", value),
    ]
    quiet = [
        ("radio_model.summary_idxs", value),
        ("input_conditioner.norm_std", value),
        ("adaptors.siglip.fc1.weight", value),
        ("teacher.encoder.layer.0.norm1.weight", value),
    ]
    result["loaded"] = sorted(model.load_weights(strange[:3] + quiet))
    model.load_weights(strange + quiet)
    result["warnings"] = log.take()
    model = make()
    model.load_weights(strange[:1])
    result["another tower"] = log.take()

    model = make()
    state = {f"radio_model.hf_model.{n}": v for n, v in FIRST.items()}
    vllm_tower.load(model, list(state.items()))
    result["hf_model"] = judge(model, FIRST)

    model = make()
    before = model.get_parameter("model.encoder.layers.0.attn.qkv.weight").detach().clone()
    model.load_weights([p for p in stream(FIRST, "transformers") if ".q_proj." in p[0]])
    after = model.get_parameter("model.encoder.layers.0.attn.qkv.weight").detach()
    query = FIRST["encoder.layer.0.attention.q_proj.weight"]
    width = reference.HIDDEN
    result["query alone"] = torch.equal(after[:width], query) and torch.equal(
        after[width:], before[width:]
    )
    try:
        token = FIRST["embeddings.cls_register_token"][None]
        make().load_weights([("embeddings.cls_register_token", token)])
        result["3-D token"] = "accepted"
    except AssertionError:
        result["3-D token"] = "refused"
    return result


written = {
    "formats": formats(),
    "scales": scales(),
    "layerwise": layerwise(),
    "names": names(),
}
Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(written))
