"""Patch ``radio-native-names``: names, streams, configs and what is reported, on a fake tower."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from vllm_nemo.patches.radio_native_names import complete_config, translate_model

from tests.unit.patches.fake_tower import COMPLETE, Module, Tower, streams

pytestmark = pytest.mark.usefixtures("no_layerwise_refit")


@given(streams())
def test_the_tower_does_not_depend_on_names_order_batches_or_duplicates(batches):
    tower = Tower()
    loaded = set()
    for batch in batches:
        loaded |= tower.load_weights(iter(batch))
    assert tower.held() == COMPLETE
    assert loaded == set(COMPLETE)


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
    with caplog.at_level(logging.WARNING, "vllm.nemo.radio_native_names"):
        for batch in (strange[:1] + quiet, cut_off, strange + quiet):
            assert tower.load_weights([(name, None) for name in batch]) == set()
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("1 weights for the RADIO vision tower")
    assert first.endswith(f": {strange[0]}")
    assert second.endswith(f": {strange[1]}")


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
        (whole(flat(hidden_size=400)), r"cannot build.*\(400, 12, 6, 1600\)\. It can build one of"),
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
