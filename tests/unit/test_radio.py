"""The logic of RADIO weight loading, without vLLM and torch: names, streams, what is reported.

A tensor is a tuple here, and a parameter remembers what its weight loader was given last.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_nemo.radio import (
    complete_config,
    load_final_layernorm,
    load_layer_scales,
    translate_model,
    translate_tower,
)
from vllm_nemo.radio import names as names_module

LAYERS = 2
PARTS = ("attn.qkv", "attn.proj", "norm1", "norm2", "mlp.fc1", "mlp.fc2")


class Parameter:
    """Holds what was loaded into it, by shard."""

    is_meta = False

    def __init__(self):
        self.held = {}
        self.data = self

    def weight_loader(self, parameter, weight, shard=None):
        assert parameter is self
        self.held[shard] = weight

    def fill_(self, value):
        self.held = {None: ("filled", value)}


class Module:
    """As much of ``nn.Module`` as is used."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Tower(Module):
    def __init__(self, layers=LAYERS, depth=LAYERS):
        names = [f"model.patch_generator.{n}" for n in ("pos_embed", "cls_token.token")]
        names += [f"model.patch_generator.{n}embedder.weight" for n in ("", "video_")]
        for index in range(layers):
            prefix = f"model.encoder.layers.{index}."
            names += [f"{prefix}{part}.{leaf}" for part in PARTS for leaf in ("weight", "bias")]
            names += [f"{prefix}ls1", f"{prefix}ls2"]
        self.parameters = {name: Parameter() for name in names}
        blocks = [
            Module(**{s: self.parameters[f"model.encoder.layers.{i}.{s}"] for s in ("ls1", "ls2")})
            for i in range(layers)
        ]
        self.model = SimpleNamespace(encoder=SimpleNamespace(layers=blocks))
        self.config = SimpleNamespace(initializer_factor=0.5, num_hidden_layers=depth)

    def named_parameters(self):
        return self.parameters.items()

    def get_submodule(self, owner):
        leaves = {
            n.rpartition(".")[2]: p
            for n, p in self.parameters.items()
            if n.rpartition(".")[0] == owner
        }
        return Module(**leaves)

    def load_weights(self, weights):
        """The loop of vLLM's loader, for names that it knows, behind both patches' generators."""
        loaded = set()
        stream = translate_tower(self, weights, loaded)
        for name, weight in load_layer_scales(self, stream, loaded):
            assert name.startswith("radio_model.model."), name
            key = name.removeprefix("radio_model.").replace("model.blocks", "model.encoder.layers")
            self.parameters[key].weight_loader(self.parameters[key], weight)
            loaded.add(key)
        return loaded

    def held(self):
        return {name: parameter.held for name, parameter in self.parameters.items()}


@pytest.fixture(autouse=True)
def fake_vllm(monkeypatch):
    """Stand-ins for the two modules of vLLM that are imported when a weight is loaded."""
    path = "vllm.model_executor.model_loader"
    for name in ("vllm", "vllm.model_executor", path, f"{path}.reload"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    layerwise = ModuleType(f"{path}.reload.layerwise")
    idle = SimpleNamespace(can_load=lambda: False)
    layerwise.get_layerwise_info = lambda _: idle
    utilities = ModuleType(f"{path}.weight_utils")
    utilities.default_weight_loader = None
    monkeypatch.setitem(sys.modules, layerwise.__name__, layerwise)
    monkeypatch.setitem(sys.modules, utilities.__name__, utilities)


def native(index, rest):
    return f"encoder.layer.{index}.{rest}"


def legacy(index, rest):
    return f"radio_model.model.blocks.{index}.{rest}"


def spellings(parameter, shard):
    """Every name that a piece of a parameter goes by."""
    if parameter.startswith("model.patch_generator."):
        theirs = {
            "embedder.weight": "patch_projection.weight",
            "video_embedder.weight": "video_patch_projection.weight",
            "pos_embed": "position_embedding",
            "cls_token.token": "cls_register_token",
        }[parameter.removeprefix("model.patch_generator.")]
        return [f"radio_model.{parameter}", f"embeddings.{theirs}"]
    _, _, _, index, part = parameter.split(".", 4)
    if part in ("ls1", "ls2"):
        spelled = [part, f"{part}.grandma", f"{part}.gamma", f"layer_scale{part[2]}.lambda1"]
        return [legacy(index, name) for name in spelled] + [native(index, spelled[-1])]
    leaf = part.rpartition(".")[2]
    if part.startswith("attn.qkv"):
        word = {"q": "query", "k": "key", "v": "value"}[shard]
        remote, current = f"attention.attention.{word}.{leaf}", f"attention.{shard}_proj.{leaf}"
        return [native(index, remote), native(index, current), legacy(index, remote)]
    if part.startswith("attn.proj"):
        others = [f"attention.output.dense.{leaf}", f"attention.o_proj.{leaf}"]
        return [legacy(index, part)] + [native(index, name) for name in others]
    return [legacy(index, part), native(index, part)]


PIECES = [
    (name, shard)
    for name in Tower().parameters
    for shard in (("q", "k", "v") if ".qkv." in name else (None,))
]
COMPLETE = {
    name: {shard: (name, shard) for n, shard in PIECES if n == name} for name in Tower().parameters
}


@st.composite
def streams(draw):
    """All pieces in any order, each in any spelling, some twice, cut into batches."""
    pieces = draw(st.permutations(PIECES + draw(st.lists(st.sampled_from(PIECES), max_size=9))))
    weights = [(draw(st.sampled_from(spellings(*piece))), piece) for piece in pieces]
    batches = [[]]
    for weight in weights:
        batches[-1].append(weight)
        if draw(st.integers(0, 3)) == 0:
            batches.append([])
    return batches


@given(streams())
def test_the_tower_does_not_depend_on_names_order_batches_or_duplicates(batches):
    tower = Tower()
    loaded = set()
    for batch in batches:
        loaded |= tower.load_weights(iter(batch))
    assert tower.held() == COMPLETE
    assert loaded == set(COMPLETE)


@given(streams(), st.sets(st.sampled_from([p for p in PIECES if ".ls" in p[0]])))
def test_a_scale_that_was_never_offered_is_filled_and_no_other(batches, missing):
    tower = Tower()
    for batch in batches:
        tower.load_weights([pair for pair in batch if pair[1] not in missing])
        for name, held in tower.held().items():
            if ".ls" in name:  # at the end of every call, a scale is its own or filled
                assert held[None] in ((name, None), ("filled", 0.5))
    expected = dict(COMPLETE) | {name: {None: ("filled", 0.5)} for name, _ in missing}
    assert tower.held() == expected


def test_a_real_scale_follows_a_filled_one_and_stays():
    tower = Tower()
    scale = tower.parameters["model.encoder.layers.1.ls2"]
    tower.load_weights([])
    assert scale.held == {None: ("filled", 0.5)}
    tower.load_weights([("encoder.layer.1.layer_scale2.lambda1", "real")])
    tower.load_weights([])
    assert scale.held == {None: "real"}
    filled = tower.parameters["model.encoder.layers.1.ls1"]
    filled.held = {None: "what a level-2 sleep leaves"}
    tower.load_weights([])
    assert filled.held == {None: ("filled", 0.5)}
    assert scale.held == {None: "real"}


def test_scales_are_loaded_without_the_other_patch_and_the_rest_passes():
    tower = Tower()
    loaded = set()
    given = {"encoder.layer.0.layer_scale1.lambda1": 1, "encoder.layer.0.norm1.bias": 2, "other": 3}
    rest = list(load_layer_scales(tower, given, loaded))
    assert rest == [("encoder.layer.0.norm1.bias", 2), ("other", 3)]
    assert loaded == {"model.encoder.layers.0.ls1"}


def test_fused_attention_goes_to_the_loader_of_vllm():
    tower = Tower()
    tower.load_weights([("radio_model.model.blocks.0.attn.qkv.bias", "fused")])
    assert tower.parameters["model.encoder.layers.0.attn.qkv.bias"].held == {None: "fused"}


def test_strange_names_are_reported_once_with_their_list(caplog):
    tower = Tower(depth=4)
    strange = ["encoder.layer.0.attention.query.weight", "radio_model.model.norm.weight"]
    quiet = [
        "summary_idxs",
        "radio_model.input_conditioner.norm_mean",
        "adaptors.x",
        "x.blocks.0.y",
    ]
    cut_off = ["encoder.layer.3.norm1.weight"]
    with caplog.at_level(logging.WARNING, "vllm.nemo.radio"):
        for batch in (strange[:1] + quiet, cut_off, strange + quiet):
            assert tower.load_weights([(name, None) for name in batch]) == set()
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("1 weights for the RADIO vision tower")
    assert first.endswith(f": {strange[0]}")
    assert second.endswith(f": {strange[1]}")


NORM_BIAS = "vision_projector.vision_final_layernorm.bias"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vision_model.encoder.layer.0.x", "vision_model.radio_model.encoder.layer.0.x"),
        ("vision_model.radio_model.model.x", "vision_model.radio_model.model.x"),
        ("vision_model.summary_idxs", "vision_model.radio_model.summary_idxs"),
        ("vision_projector.mlp1.norm.weight", "mlp1.0.weight"),
        ("vision_projector.mlp1.linear1.weight", "mlp1.1.weight"),
        ("vision_projector.mlp1.linear2.weight", "mlp1.3.weight"),
        ("multi_modal_projector.layer_norm.weight", "mlp1.0.weight"),
        ("multi_modal_projector.linear_1.weight", "mlp1.1.weight"),
        ("multi_modal_projector.linear_2.weight", "mlp1.3.weight"),
        ("mlp1.1.weight", "mlp1.1.weight"),
        (
            "vision_projector.vision_final_layernorm.bias",
            "vision_projector.vision_final_layernorm.bias",
        ),
        ("language_model.vision_model.x", "language_model.vision_model.x"),
        ("sound_projection.norm.weight", "sound_projection.norm.weight"),
    ],
)
def test_the_names_of_the_whole_model(name, expected, caplog):
    assert list(translate_model(Module(), [(name, 1)])) == [(expected, 1)]
    assert not caplog.records


def test_projector_weights_that_fit_no_layer_are_reported(caplog):
    model = Module()
    given = [("multi_modal_projector.linear_3.weight", 1), ("vision_projector.mlp1.norm", 2)]
    assert list(translate_model(model, given)) == []
    assert list(translate_model(model, given)) == []
    (record,) = caplog.records
    assert "2 weights for the vision projector" in record.getMessage()
    assert (
        "multi_modal_projector.linear_3.weight, vision_projector.mlp1.norm" in record.getMessage()
    )


def test_streams_are_read_one_by_one():
    """A sender may reuse the memory of one tensor for the next."""
    seen = []

    def sender():
        for name in ("language_model.a", "vision_model.encoder.layer.0.norm1.bias"):
            seen.append(name)
            yield name, None

    stream = translate_model(Module(), sender())
    next(stream)
    assert seen == ["language_model.a"]


def norm_model(norm):
    return Module(vision_final_layernorm=norm, _nemo_final_layernorm=set())


def test_the_final_norm_takes_both_prefixes_and_leaves_the_rest():
    norm = Module(weight=Parameter(), bias=Parameter())
    model = norm_model(norm)
    given = [
        ("vision_projector.vision_final_layernorm.weight", 1),
        ("mlp1.0.weight", 2),
        ("vision_final_layernorm.bias", 3),
    ]
    assert list(load_final_layernorm(model, given, multimodal=True)) == [("mlp1.0.weight", 2)]
    assert (norm.weight.held, norm.bias.held) == ({None: 1}, {None: 3})
    assert model._nemo_final_layernorm == {"weight", "bias"}


def test_the_final_norm_is_skipped_where_there_are_no_images():
    model = norm_model(None)
    given = [("vision_final_layernorm.weight", 1), ("language_model.x", 2)]
    assert list(load_final_layernorm(model, given, multimodal=False)) == [("language_model.x", 2)]
    assert model._nemo_final_layernorm == set()


def test_a_final_norm_that_was_not_constructed_is_an_error():
    with pytest.raises(ValueError, match=r"did not construct .*num_nextn_predict_layers"):
        list(
            load_final_layernorm(
                norm_model(None), [("vision_final_layernorm.bias", 1)], multimodal=True
            )
        )
    norm = norm_model(Module(weight=Parameter(), bias=Parameter()))
    with pytest.raises(ValueError, match=r"'weight' and 'bias'"):
        list(load_final_layernorm(norm, [("vision_final_layernorm.scale", 1)], multimodal=True))


def test_names_outside_of_the_formats():
    assert names_module.resolve("language_model.model.layers.0.mlp.weight") is None
    assert names_module.resolve("radio_model.model.norm.weight") is None
    assert names_module.layer_scale("encoder.layer.0.layer_scale3.lambda1") is None
    assert names_module.final_layernorm("vision_final_layernorm2.weight") is None


@pytest.fixture
def known_towers(monkeypatch):
    for name in ("vllm.transformers_utils", "vllm.transformers_utils.configs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = ModuleType("vllm.transformers_utils.configs.radio")
    module.VIT_TIMM_DIM_BY_NAME = {"small": (384, 12, 6, 1536), "huge": (1280, 32, 16, 5120)}
    monkeypatch.setitem(sys.modules, module.__name__, module)


def flat(**changes):
    fields = {
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "mlp_ratio": 4.0,
        "patch_size": 14,
        "image_size": 448,
        "max_img_size": 2048,
        "num_cls_tokens": 3,
        "num_registers": 7,
        "summary_idxs": [0, 2],
        "video_temporal_patch_size": None,
        "layerscale_value": 0.1,
        "norm_mean": [1, 2, 3],
        "norm_std": [4, 5, 6],
    }
    return SimpleNamespace(**(fields | changes))


def whole(vision, **changes):
    fields = {
        "vision_config": vision,
        "force_image_size": 512,
        "downsample_ratio": 0.5,
        "template": "t",
        "ps_version": "v2",
        "image_tag_type": "internvl",
        "projector_hidden_size": 64,
        "use_thumbnail": False,
        "vision_hidden_size": 384,
    }
    return SimpleNamespace(**(fields | changes))


@pytest.mark.usefixtures("known_towers")
def test_a_flat_vision_config_is_completed():
    config = whole(flat(min_num_patches=4))
    complete_config(config)
    complete_config(config)
    vision = config.vision_config
    assert vision.args == {
        "model": "small",
        "cpe_max_size": 2048,
        "cls_token_per_teacher": True,
        "teachers": [
            {"name": "class token 0", "use_summary": True},
            {"name": "class token 1", "use_summary": False},
            {"name": "class token 2", "use_summary": True},
        ],
        "register_multiple": 10,
        "initializer_factor": 0.1,
        "min_num_patches": 4,
    }
    assert vision.preferred_resolution == [448, 448]
    assert vision.video_temporal_patch_size == 1
    assert (config.patch_size, config.norm_mean, config.norm_std) == (14, [1, 2, 3], [4, 5, 6])
    assert config.vit_hidden_size == 384


@pytest.mark.usefixtures("known_towers")
def test_a_config_with_args_is_left_alone():
    vision = SimpleNamespace(args={"model": "any"})
    config = SimpleNamespace(vision_config=vision)
    complete_config(config)
    assert vars(config) == {"vision_config": vision}
    assert vars(vision) == {"args": {"model": "any"}}


@pytest.mark.usefixtures("known_towers")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (whole(flat(max_img_size=None)), r"lacks max_img_size\. Take the vision_config"),
        (whole(flat(hidden_size=400)), r"cannot be.*\(400, 12, 6, 1600\)\. It can be one of"),
        (whole(flat(use_swiglu_ffn=True)), r"with SwiGLU"),
        (whole(flat(num_cls_tokens=0)), r"without class tokens"),
        (whole(flat(), template=None, ps_version=None), r"lacks .* template, ps_version\. Add"),
        (whole(flat(), vision_hidden_size=None), r"lacks .* vit_hidden_size\. Add"),
    ],
)
def test_a_flat_vision_config_that_says_too_little_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        complete_config(config)
    assert not hasattr(config.vision_config, "args")
