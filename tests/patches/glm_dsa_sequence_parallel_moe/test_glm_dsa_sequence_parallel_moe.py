"""Patch ``glm-dsa-sequence-parallel-moe``: ranks that share tokens agree with one that has all.

One scenario runs vLLM's DeepSeek decoder, its MTP layer and its EAGLE draft on 4 and on 8 real
processes (data x tensor parallel 2 x 2 and 2 x 4, expert parallel). The oracle is a single rank on
the same weights, and that rank in turn is held against transformers' model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "ranks.py"
WORLDS = ("tp2", "tp4")
COUNTS = {str(count) for count in range(1, 18)}

# All ranks compute in float32, so only the order of sums differs. The defect is about 1.
CLOSE = 1e-4
WRONG = 1e-1

TARGETS = ("decoder", "alternating")


def others(vllm_env):
    """Tell whether two more models guess the layout in the same way."""
    return vllm_env.at_least("0.26.0") and not vllm_env.at_least("0.28.0")


def stock_mtp_shares(vllm_env):
    """Tell whether stock MTP returns every rank's shard of the tokens; later it gathers."""
    return not vllm_env.at_least("0.26.0")


@pytest.fixture
def overlay(vllm_env):
    return vllm_env.scenario(RANKS, overlay=True, others=others(vllm_env)).ok()


@pytest.fixture
def stock(vllm_env):
    return vllm_env.scenario(RANKS, overlay=False, others=others(vllm_env)).ok()


def single(label):
    """Whether the forward pass was of one token."""
    return label == "1" or label.startswith("decode")


def close(difference):
    return difference is not None and difference < CLOSE


def test_every_number_of_tokens_agrees_with_one_rank(overlay):
    assert set(overlay["differences"]["decoder"]) > COUNTS
    for stack, rows in overlay["differences"].items():
        assert {"1", "prompt", "decode 0"} <= set(rows)
        for label, worlds in rows.items():
            assert set(worlds) == set(WORLDS)
            assert all(close(found) for found in worlds.values()), (stack, label, worlds)


def test_the_single_rank_agrees_with_transformers(overlay, stock):
    assert overlay["from transformers"] < CLOSE
    assert stock["from transformers"] < CLOSE


def test_stock_is_wrong_for_one_token_and_for_no_other_number(vllm_env, stock):
    for stack in TARGETS + (("v32", "qwen3-next") if others(vllm_env) else ()):
        for label, worlds in stock["differences"][stack].items():
            for world in WORLDS:
                if single(label):
                    assert worlds[world] > WRONG, (stack, label, worlds)
                else:
                    assert close(worlds[world]), (stack, label, worlds)


def test_stock_drafts(vllm_env, stock):
    """A shard of one token has the right shape, but wrong content on all ranks but the first."""
    drafts = {"eagle": True, "mtp": stock_mtp_shares(vllm_env)}
    for stack, shares in drafts.items():
        for label, worlds in stock["differences"][stack].items():
            for world in WORLDS:
                if not shares:
                    assert close(worlds[world]), (stack, label, worlds)
                elif single(label):
                    assert worlds[world] > WRONG, (stack, label, worlds)
                else:
                    assert worlds[world] is None, (stack, label, worlds)
