"""Patch ``eagle3-draft-lm-head``: its rules, on stand-ins that have what the rules read."""

from __future__ import annotations

import gc
import logging
import sys
import types
import weakref

import pytest
from vllm_nemo.patches.eagle3_draft_lm_head import HeadSize, keeps_own_head, refuse_shared_head


class Head:
    def __init__(self, tokens, width=128):
        self.org_vocab_size = tokens
        self.embedding_dim = width


class Draft:
    def __init__(self, head=None, **attributes):
        if head is not None:
            self.lm_head = head
        self.__dict__.update(attributes)


class Wrapped:
    """As LoRA wraps the embedding that is also the head."""

    def __init__(self, base_layer):
        self.base_layer = base_layer


class Missing:
    """As on a pipeline-parallel rank without the head."""


@pytest.fixture
def config(monkeypatch):
    """Stand in for ``vllm.config``; the current configuration is the fixture's value."""
    current = types.SimpleNamespace(
        model_config=types.SimpleNamespace(get_vocab_size=lambda: 256),
        load_config=types.SimpleNamespace(load_format="auto"),
        speculative_config=types.SimpleNamespace(draft_load_config=None),
    )
    module = types.ModuleType("vllm.config")
    module.get_current_vllm_config_or_none = lambda: current
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.config", module)
    return current


@pytest.mark.parametrize(
    ("draft", "target", "keeps"),
    [
        (Head(64), Head(256), True),
        (Head(512), Head(256), True),
        (Head(250), Head(256), True),  # the same rows of memory once padded
        (Head(256), Head(256), False),
        (Head(256, width=64), Head(256), True),
        (Head(64), Wrapped(Head(256)), True),
        (Head(256), Wrapped(Head(256)), False),
        (None, Head(256), False),
        (Missing(), Head(256), False),
        (Head(64), None, False),
        (Head(64), Missing(), True),  # by the configured vocabulary
        (Head(256), Missing(), False),
    ],
)
def test_keeps_own_head(config, draft, target, keeps):
    assert keeps_own_head(Draft(draft), target) is keeps


def test_without_a_configuration_a_missing_target_head_decides_nothing(config, monkeypatch):
    monkeypatch.setattr(sys.modules["vllm.config"], "get_current_vllm_config_or_none", lambda: None)
    assert not keeps_own_head(Draft(Head(64)), Missing())


@pytest.mark.parametrize("container", [list, lambda layers: dict(enumerate(layers))])
def test_heads_of_mtp_layers_count(config, container):
    def draft(tokens):
        layer = types.SimpleNamespace(shared_head=types.SimpleNamespace(head=Head(tokens)))
        plain = types.SimpleNamespace()
        return Draft(model=types.SimpleNamespace(layers=container([plain, layer])))

    assert keeps_own_head(draft(64), Head(256))
    assert not keeps_own_head(draft(256), Head(256))


@pytest.mark.parametrize(
    ("load_format", "draft_load_format", "has_own", "level"),
    [
        ("dummy", None, False, logging.INFO),
        ("auto", "dummy", False, logging.INFO),
        ("auto", None, True, logging.INFO),
        ("auto", None, None, logging.INFO),  # no EAGLE draft, so there is no flag to go by
        ("auto", None, False, logging.WARNING),
        ("dummy", "auto", False, logging.WARNING),
    ],
)
def test_a_head_without_weights_is_warned_of(
    config, caplog, load_format, draft_load_format, has_own, level
):
    config.load_config.load_format = load_format
    if draft_load_format:
        config.speculative_config.draft_load_config = types.SimpleNamespace(
            load_format=draft_load_format
        )
    flags = {} if has_own is None else {"has_own_lm_head": has_own}
    with caplog.at_level(logging.INFO, logger="vllm.nemo.eagle3_draft_lm_head"):
        assert keeps_own_head(Draft(Head(64), **flags), Head(256))
    (record,) = caplog.records
    assert record.levelno == level
    assert "64 tokens from 128 features" in record.message
    assert "256 tokens from 128 features" in record.message


def test_a_shared_head_is_not_loaded_through_the_draft(config):
    target = Head(256)
    draft = Draft(Head(256))
    refuse_shared_head(draft, "lm_head.weight")  # the first load, before anything is shared
    assert not keeps_own_head(draft, target)
    refuse_shared_head(draft, "lm_head.weight")  # vLLM decided not to share
    draft.lm_head = target
    with pytest.raises(RuntimeError, match=r"'lm_head\.weight'.* Draft.*256 tokens") as error:
        refuse_shared_head(draft, "lm_head.weight")
    assert "eagle3-draft-lm-head" in str(error.value)
    assert "leave lm_head out" in str(error.value).lower()


def test_a_head_of_its_own_is_loaded(config):
    draft = Draft(Head(64))
    assert keeps_own_head(draft, Head(256))
    refuse_shared_head(draft, "lm_head.weight")


def test_models_are_not_kept_alive(config):
    draft, target = Draft(Head(256)), Head(256)
    keeps_own_head(draft, target)
    seen = weakref.ref(draft), weakref.ref(target)
    del target
    gc.collect()
    refuse_shared_head(draft, "lm_head.weight")
    del draft
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


def test_the_size_of_something_else():
    assert HeadSize.of(object()) == (None, None)
    assert not HeadSize(None, None).differs(HeadSize(256, 128))
    assert HeadSize(256, None).differs(HeadSize(64, 128))
