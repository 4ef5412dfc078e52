"""Scenario: a running Nemotron VL engine, started with dummy weights and refitted.

The oracle is transformers' Nemotron Omni model on the same weights: tower, final LayerNorm, pixel
shuffle and projector. ``device``: where.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"

import torch

from tests.support import vllm_internals
from tests.support.radio import checkpoint, reference, vllm_tower

arguments = json.loads(sys.argv[1])
DEVICE = arguments["device"]
LLM_ARGUMENTS = {
    **arguments["engine"],
    "max_model_len": 256,
    "max_num_seqs": 2,
    "skip_tokenizer_init": False,
}
DTYPE = torch.bfloat16
LIMIT = 2_000_000
WITH_OVERLAY = os.environ.get("NRL_VLLM_OVERLAY") != "off"
SCRATCH = Path(tempfile.mkdtemp())
PROJECTORS = {
    "legacy": ("mlp1.0", "mlp1.1", "mlp1.3"),
    "hybrid": ("mlp1.0", "mlp1.1", "mlp1.3"),
    "remote": tuple(f"vision_projector.mlp1.{n}" for n in ("norm", "linear1", "linear2")),
    "transformers": tuple(
        f"multi_modal_projector.{n}" for n in ("layer_norm", "linear_1", "linear_2")
    ),
}
VIDEOS = ("video", "many frames")
NORM = {
    "legacy": "vision_projector.vision_final_layernorm",
    "hybrid": "vision_projector.vision_final_layernorm",
    "remote": "vision_projector.vision_final_layernorm",
    "transformers": "vision_final_layernorm",
}


class Weights:
    """A trainer's vision weights: tower, projector and final norm, on a device."""

    def __init__(self, tower, projector, norm):
        self.tower, self.projector, self.norm = tower, projector, norm

    @classmethod
    def make(cls, seed):
        generator = torch.Generator().manual_seed(seed)

        def values(*shape):
            return torch.randn(*shape, generator=generator)

        inner, width = 4 * reference.HIDDEN, checkpoint.WIDTH
        projector = [
            1 + 0.2 * values(inner),
            values(width, inner) * inner**-0.5 * 2,
            values(width, width) * width**-0.5,
        ]
        # fp32, and not representable in bf16
        norm = {
            "weight": 1 + 0.3 * values(reference.HIDDEN),
            "bias": 0.3 * values(reference.HIDDEN),
        }
        tower = reference.weights(reference.tower(checkpoint.TOWER_LAYERS, seed))
        return cls(
            {n: v.to(DEVICE, DTYPE) for n, v in tower.items()},
            [v.to(DEVICE, DTYPE) for v in projector],
            {n: v.to(DEVICE) for n, v in norm.items()},
        )

    def folded(self, filled):
        """Without LayerScale; ``filled``: with the ones that stand for it."""
        tower = {n: v for n, v in self.tower.items() if "layer_scale" not in n}
        if filled:
            ones = {n: torch.ones_like(v) for n, v in self.tower.items() if "layer_scale" in n}
            tower |= ones
        return Weights(tower, self.projector, self.norm)

    def pairs(self, fmt, norm=("weight", "bias"), *, projector=True):
        result = [("vision_model." + n, v) for n, v in reference.stream(self.tower, fmt)]
        if projector:
            names = [f"{name}.weight" for name in PROJECTORS[fmt]]
            result += list(zip(names, self.projector, strict=True))
        # In the middle of the stream, and far apart, so that they are in different batches.
        for index, name in enumerate(norm):
            result.insert(5 + 20 * index, (f"{NORM[fmt]}.{name}", self.norm[name]))
        return result


def make_oracle():
    from transformers.models.nemotron_h_omni.configuration_nemotron_h_omni import (
        NemotronH_Omni_Reasoning_V3_Config,
    )
    from transformers.models.nemotron_h_omni.modeling_nemotron_h_omni import (
        NemotronH_Omni_Reasoning_V3,
    )

    text = {
        "model_type": "nemotron_h",
        "vocab_size": 512,
        "hidden_size": checkpoint.WIDTH,
        "intermediate_size": 128,
        "layers_block_type": ["attention", "mlp"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_nextn_predict_layers": 1,
    }
    config = NemotronH_Omni_Reasoning_V3_Config(
        vision_config=reference.config(checkpoint.TOWER_LAYERS).to_dict(),
        text_config=text,
        projector_hidden_size=checkpoint.WIDTH,
        vision_hidden_size=reference.HIDDEN,
        downsample_ratio=0.5,
    )
    config.vision_config.torch_dtype = DTYPE
    return NemotronH_Omni_Reasoning_V3(config).to(DEVICE, DTYPE).eval()


@torch.no_grad()
def oracle_features(oracle, weights, given, *, norm=True):
    """What transformers computes: ``shuffled`` in front of the projector, and behind it."""
    oracle.vision_model.load_state_dict({**oracle.vision_model.state_dict(), **weights.tower})
    layers = oracle.multi_modal_projector
    for layer, value in zip(
        (layers.layer_norm, layers.linear_1, layers.linear_2), weights.projector, strict=True
    ):
        layer.weight.copy_(value)
    final = torch.nn.LayerNorm(reference.HIDDEN, eps=1e-6, device=DEVICE)
    final.load_state_dict(weights.norm)
    # The trainer's norm is in fp32; that of transformers' model is in bf16.
    oracle.vision_final_layernorm = Fp32(final) if norm else None
    captured = []
    hook = layers.register_forward_pre_hook(lambda _, inputs: captured.append(inputs[0]))
    tower = oracle.vision_model
    shuffled, result = {}, {}
    for name, pixels in given.items():
        captured.clear()
        if name == "packed":
            grid = reference.grid(DEVICE)
            result[name] = torch.cat(oracle.get_image_features(pixels, grid).pooler_output)
        else:
            side = pixels.shape[-1] // reference.PATCH
            # Cut as in vLLM, because a matrix product of another size may round differently.
            parts = pixels.split(128)
            images = map(reference.tubelets, parts) if name in VIDEOS else parts
            result[name] = torch.cat(
                [oracle.project_vision_features(tower(i).features, side, side) for i in images]
            )
        shuffled[name] = torch.cat(captured)
    hook.remove()
    return shuffled, result


class Fp32(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, features):
        return self.norm(features.float()).to(features.dtype)


@torch.no_grad()
def engine_features(model, given):
    """The same from vLLM's model."""
    captured = []
    hook = model.mlp1.register_forward_pre_hook(lambda _, inputs: captured.append(inputs[0]))
    shuffled, result = {}, {}
    for name, pixels in given.items():
        captured.clear()
        if name == "packed":
            sizes = list(reference.SIZES)
            result[name] = model.extract_feature_dynamic(pixels[None], imgs_sizes=sizes)[0]
            shuffled[name] = captured[0][0]
        else:
            frames = len(pixels) if name in VIDEOS else None
            result[name] = model.extract_feature(pixels, num_frames=frames)
            shuffled[name] = torch.cat(captured)
    hook.remove()
    return shuffled, result


def make_inputs(*, large=False):
    generator = torch.Generator().manual_seed(5)
    given = reference.inputs(DEVICE, DTYPE)
    if large:  # more than the 128 frames that vLLM takes at a time
        for name in ("many images", "many frames"):
            given[name] = torch.randn(130, 3, 32, 32, generator=generator).to(DEVICE, DTYPE)
    return given


class Engine:
    """A running engine, its model, and the ways to give it weights."""

    def __init__(self):
        from vllm import LLM

        from tests.support.radio import file_transfer

        file_transfer.register()
        self.llm = LLM(
            model=checkpoint.write(SCRATCH / "model", mtp_layers=1),
            load_format="dummy",
            trust_remote_code=True,
            dtype="bfloat16",
            weight_transfer_config={"backend": "files"},
            **LLM_ARGUMENTS,
        )
        self.llm.init_weight_transfer_engine({"init_info": {}})
        (self.model,) = self.llm.apply_model(lambda model: model)

    def direct(self, pairs):
        """As NeMo-RL: the model's ``load_weights``, a batch at a time, from one reused buffer."""
        batches = list(reference.batches(pairs, LIMIT))
        buffer = torch.empty(max(v.nbytes for _, v in pairs), dtype=torch.uint8, device=DEVICE)

        def reused(batch):
            for name, value in batch:
                flat = buffer[: value.nbytes].view(value.dtype)
                flat.copy_(value.flatten())
                yield name, flat.view(value.shape)
                buffer.fill_(0x7F)

        for batch in batches:
            self.model.load_weights(reused(batch))
        return len(batches)

    def transfer(self, pairs):
        """vLLM's own refit, through the engine's API."""
        batches = list(reference.batches(pairs, LIMIT))
        self.llm.start_weight_update()
        for index, batch in enumerate(batches):
            path = SCRATCH / f"{index}.pt"
            torch.save(batch, path)
            self.llm.update_weights({"update_info": {"path": str(path)}})
        self.llm.finish_weight_update()
        return len(batches)

    def reload(self, pairs):
        """vLLM's ``reload_weights``: the same refit in one call."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(pairs)})
        return 1


vllm_internals.keep_weights_live(DEVICE)
log = vllm_tower.Log()
engine = Engine()
oracle = make_oracle()
written = {}
_answers = {}


def judge(name, weights, batches=0, *, norm=True, large=False):
    """Compare the engine's features with transformers' for these weights."""
    given = make_inputs(large=large)
    key = (id(weights), norm, large)
    if key not in _answers:
        _answers[key] = (weights, oracle_features(oracle, weights, given, norm=norm))
    shuffled, projected = _answers[key][1]
    ours_shuffled, ours_projected = engine_features(engine.model, given)
    written[name] = {
        "batches": batches,
        "shuffled": reference.compare(ours_shuffled, shuffled),
        "features": reference.compare(ours_projected, projected),
        "warnings": log.take(),
    }


def norm_state():
    norm = getattr(engine.model, "vision_final_layernorm", None)
    if norm is None:
        return None
    return {
        "dtype": str(norm.weight.dtype),
        "right": all(torch.equal(getattr(norm, n).data, v) for n, v in third.norm.items()),
    }


def refits():
    model = engine.model
    judge("dummy", first)

    folded, filled = first.folded(filled=False), first.folded(filled=True)
    batches = engine.transfer(folded.pairs("legacy", norm=()))
    judge("transfer folded", filled, batches, norm=False)
    vllm_tower.noise(model.vision_model)  # as a level-2 sleep leaves it
    batches = engine.direct(folded.pairs("transformers", norm=()))
    judge("direct folded", filled, batches, norm=False)

    batches = engine.direct(first.pairs("transformers", norm=()))
    judge("direct, no norm", first, batches, norm=False)
    for leaf in ("weight", "bias"):
        engine.direct([(f"{NORM['transformers']}.{leaf}", first.norm[leaf])])
        judge(f"direct, norm's {leaf}", first, norm=leaf == "bias")

    # The script corrects the other patches' defects, so that only the norm's is left. The weights
    # are others than those of the steps that follow, which stock vLLM may drop.
    engine.direct(first.pairs("legacy"))
    with torch.no_grad():
        for index, layer in enumerate(model.vision_model.model.encoder.layers):
            for number in (1, 2):
                value = first.tower[f"encoder.layer.{index}.layer_scale{number}.lambda1"]
                getattr(layer, f"ls{number}").copy_(value)
    for norm in (True, False):
        judge(f"only the norm's defect, norm={norm}", first, norm=norm)

    # The tower scenario tests each format; here each is one more step of a trainer.
    for way, fmt, weights in STEPS:
        batches = getattr(engine, way)(weights.pairs(fmt))
        large = (way, fmt) in (("direct", "legacy"), ("transfer", "remote"))
        judge(f"{way} {fmt}", weights, batches, large=large)
    written["norm"] = norm_state()
    written["connector"] = model.get_mm_mapping().connector
    written["keys"] = [k for k in model.state_dict() if k.startswith("vision_final")]

    attention = ("q_proj", "k_proj", "v_proj")
    engine.direct([p for p in first.pairs("hybrid", norm=()) if ".attention." in p[0]])
    tower = {
        n: first.tower[n] if any(part in n for part in attention) else v
        for n, v in third.tower.items()
    }
    mixed = Weights(tower, third.projector, third.norm)
    judge("direct, partial", mixed)
    engine.transfer([(f"{NORM['remote']}.bias", first.norm["bias"])])
    mixed = Weights(tower, third.projector, {**third.norm, "bias": first.norm["bias"]})
    judge("transfer, norm's bias", mixed)


def generate():
    """An image prompt, answered by the engine."""
    from PIL import Image
    from vllm import SamplingParams

    image = Image.new("RGB", (64, 64), (200, 30, 90))
    prompt = {"prompt": "<image> what?", "multi_modal_data": {"image": image}}
    (output,) = engine.llm.generate(prompt, SamplingParams(max_tokens=3, temperature=0))
    return len(output.outputs[0].token_ids)


def build(model, **options):
    """Make a model with dummy weights, as an engine does, without one."""
    config = vllm_internals.configuration(
        model,
        load_format="dummy",
        trust_remote_code=True,
        dtype="bfloat16",
        **{**LLM_ARGUMENTS, **options},
    )
    return vllm_internals.load_model(config)


def others():
    """Models that differ in their config."""
    result = {}

    def attempt(call):
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - whatever stock raises is the result
            return f"{type(error).__name__}: {error}"

    plain = build(checkpoint.write(SCRATCH / "plain", mtp_layers=0))
    norm = [(f"{NORM['remote']}.weight", first.norm["weight"])]
    result["no MTP: module"] = getattr(plain, "vision_final_layernorm", "missing") is None
    result["no MTP: norm offered"] = attempt(lambda: plain.load_weights(norm))
    plain.load_weights(first.pairs("transformers", norm=()))
    shuffled, _ = oracle_features(oracle, first, make_inputs(), norm=False)
    ours, _ = engine_features(plain, make_inputs())
    result["no MTP: shuffled"] = reference.compare(ours, shuffled)

    no_images = {"limit_mm_per_prompt": {"image": 0, "video": 0, "audio": 0}}
    text_only = build(str(SCRATCH / "model"), **no_images)
    result["text only"] = attempt(lambda: text_only.load_weights(first.pairs("remote")))

    # The overlay finds some of the values in the vision config, too.
    moved = ("norm_mean", "norm_std", "patch_size") if WITH_OVERLAY else ()
    directory = checkpoint.write(
        SCRATCH / "flat", mtp_layers=1, vision=checkpoint.flat_vision(), without=moved
    )
    flat = attempt(lambda: build(directory))
    if not isinstance(flat, str):
        flat.load_weights(first.pairs("transformers"))
        shuffled, _ = oracle_features(oracle, first, make_inputs())
        ours, _ = engine_features(flat, make_inputs())
        flat = reference.compare(ours, shuffled)
    result["flat"] = flat
    directory = checkpoint.write(
        SCRATCH / "lacking", mtp_layers=1, vision=checkpoint.flat_vision(), without=("template",)
    )
    result["flat, lacking"] = attempt(lambda: str(type(build(directory))))
    return result


first, second, third = (Weights.make(seed) for seed in (1, 2, 3))
STEPS = (
    ("direct", "transformers", second),
    ("transfer", "hybrid", third),
    ("reload", "remote", second),
    ("reload", "transformers", third),
    ("direct", "legacy", second),
    ("transfer", "remote", third),
)
try:
    with torch.inference_mode():
        refits()
    written["generated"] = generate()
    written["others"] = others()
finally:  # of a failed run, too: it is shown
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(written))
