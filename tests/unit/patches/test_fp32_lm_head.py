"""Patch ``fp32-lm-head``: the parts of its logic that need neither torch nor vLLM."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from vllm_nemo.patches import fp32_lm_head


class Config(SimpleNamespace):
    def get_text_config(self):
        return self


@pytest.mark.parametrize(
    ("value", "asked"), [(None, False), ("", False), ("0", False), ("1", True)]
)
def test_values(value: str | None, *, asked: bool) -> None:
    environ = {} if value is None else {fp32_lm_head.SWITCH: value}
    assert fp32_lm_head.is_requested(environ) is asked


@pytest.mark.parametrize("value", ["true", "on", "yes", "2", "01", " 1", "1\n", "fp32"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=f"{fp32_lm_head.SWITCH}=.* set it to 1"):
        fp32_lm_head.is_requested({fp32_lm_head.SWITCH: value})


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRL_VLLM_FP32_LM_HEAD", "1")
    assert fp32_lm_head.is_requested()
    monkeypatch.delenv("NRL_VLLM_FP32_LM_HEAD")
    assert not fp32_lm_head.is_requested()


def test_without_the_variable_a_configuration_is_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NRL_VLLM_FP32_LM_HEAD", raising=False)
    untouchable = object()
    fp32_lm_head.configure(untouchable)
    assert not fp32_lm_head.is_on(untouchable)
    assert not fp32_lm_head.is_on(None)


def test_pooling_models_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRL_VLLM_FP32_LM_HEAD", "1")
    model_config = SimpleNamespace(runner_type="pooling", hf_config=Config())
    fp32_lm_head.configure(model_config)
    assert vars(model_config.hf_config) == {}
    assert not fp32_lm_head.is_on(model_config)


def test_every_nested_configuration_is_found_once() -> None:
    text = Config(layers=2)
    vision = Config(size=3)
    thinker = Config(text_config=text, vision_config=vision, names=["a"], extra={"b": 1})
    top = Config(thinker_config=thinker, language=text)
    text.parent = top
    found = dict(fp32_lm_head._nested(top))
    assert set(map(id, found.values())) == set(map(id, (top, thinker, text, vision)))
    assert len(found) == 4
    assert found[""] is top
    assert found["thinker_config.vision_config."] is vision


@pytest.mark.parametrize(
    ("given", "model", "expected"),
    [
        ("float32", "torch.bfloat16", True),
        ("FLOAT32", "torch.bfloat16", True),
        ("float", "torch.bfloat16", True),
        ("model", "torch.float32", True),
        ("model", "torch.bfloat16", False),
        ("bfloat16", "torch.float32", False),
        ("half", "torch.bfloat16", False),
    ],
)
def test_what_is_fp32(given: str, model: str, *, expected: bool) -> None:
    assert fp32_lm_head._is_fp32(given, model) is expected
