"""Patch ``glm-dsa-sequence-parallel-moe``: which layers take shards, beside a simulation."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from vllm_nemo.patches.glm_dsa_sequence_parallel_moe import (
    follows_moe_layer,
    gather_tokens,
    shards_before,
)


def configuration(experts=8, first=0, frequency=1):
    return SimpleNamespace(
        n_routed_experts=experts, first_k_dense_replace=first, moe_layer_freq=frequency
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # DeepSeek V3: three dense layers, then MoE.
        (configuration(first=3), [False, False, False, False, True, True]),
        (configuration(first=0), [False, True, True, True, True, True]),
        (configuration(first=1, frequency=2), [False, False, False, True, False, True]),
        (configuration(experts=None), [False] * 6),
    ],
)
def test_layer_after_a_moe_layer(config, expected):
    assert [follows_moe_layer(config, layer) for layer in range(6)] == expected


def test_frequency_is_optional():
    config = SimpleNamespace(n_routed_experts=8, first_k_dense_replace=1)
    assert [follows_moe_layer(config, layer) for layer in range(4)] == [False, False, True, True]


def test_dense_model_need_not_say_where_moe_begins():
    """LongCat's draft clears the experts of a configuration that has no other MoE settings."""
    assert not follows_moe_layer(SimpleNamespace(n_routed_experts=None), 4)


@pytest.mark.parametrize(("first", "frequency"), list(itertools.product(range(4), range(1, 4))))
@pytest.mark.parametrize("start", [0, 7])
def test_rule_agrees_with_the_walk_through_the_stack(first, frequency, start):
    """``start`` is a draft's first layer: its index follows the target's, its input is whole."""
    config = configuration(first=first, frequency=frequency)
    sharded = False
    for layer in range(start, start + 12):
        moe = layer >= first and layer % frequency == 0
        takes_shards = moe and layer > start and follows_moe_layer(config, layer)
        assert takes_shards == (moe and sharded)
        sharded = moe


FLAGS = ("use_sequence_parallel_moe", "use_attn_reduce_scatter_for_moe")


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("gathered", [(), (1,), (2, 4)])
def test_shards_are_handed_over_by_sequence_parallel_layers_alone(flag, gathered):
    """``None`` is a layer without the flag, such as a stage that is missing."""
    for stack in itertools.product([True, False, None], repeat=4):
        layers = [SimpleNamespace(**({} if moe is None else {flag: moe})) for moe in stack]
        whole = [True, *(not moe for moe in stack)]
        for index, expected in enumerate(whole):
            found = shards_before(layers, index, gathered)
            assert found is not (expected or index in gathered), (stack, index)


class Rows(list):
    """A tensor's first dimension."""

    @property
    def shape(self):
        return (len(self),)

    def __getitem__(self, index):
        return Rows(super().__getitem__(index))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("tokens", range(1, 10))
def test_gathering_gives_every_token_once(tokens, ranks):
    positions = Rows(range(tokens))
    padded = list(range(tokens)) + ["padding"] * (-tokens % ranks)
    share = len(padded) // ranks
    calls = []

    def all_gather(tensor, dim):
        """Return what the whole group would, given the shard of any rank."""
        assert len(tensor) == share
        calls.append(dim)
        kind = next(iter(tensor))[0]
        return Rows((kind, row) for row in padded)

    hidden, residual = gather_tokens(
        all_gather, positions, Rows([("hidden", 0)] * share), Rows([("residual", 0)] * share)
    )
    assert hidden == [("hidden", row) for row in range(tokens)]
    assert residual == [("residual", row) for row in range(tokens)]
    assert calls == [0, 0]
