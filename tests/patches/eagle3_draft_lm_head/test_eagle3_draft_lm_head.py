"""Patch ``eagle3-draft-lm-head``: which head a draft model uses, and what a refit writes.

The oracles are transformers' Llama for what is generated, and for the drafts the draft head as a
float64 product of the hidden states that it was handed and its saved weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SPECULATE = HERE / "speculate.py"
SHARING = HERE / "sharing.py"

VOCAB = 256
DRAFT_VOCAB = 64
HIDDEN = 128

# Every draft class with a head of its own, and every way to share: each class loads a refit in its
# own way, but V1, and V2 for one method, share alike for all classes. Only V2 has DSpark.
DRAFTS = {
    "LlamaForCausalLMEagle3": ["V1", "V2"],
    "Eagle3Qwen3ForCausalLM": ["V1"],
    "Eagle3DeepseekV2ForCausalLM": ["V1"],
    "DFlashDraftModel": ["V1", "V2"],
    "Qwen3DSparkModel": ["V2"],
    "Gemma4DSparkModel": ["V2"],
}
FIRST_RELEASE = {"Gemma4DSparkModel": "0.26.0"}
CASES = [(draft, runner) for draft, runners in DRAFTS.items() for runner in runners]
HEADLESS = "EagleLlamaForCausalLM"
SCENARIO = [(draft, size, runner) for draft, runner in CASES for size in ("truncated", "equal")]
SCENARIO += [(HEADLESS, "equal", runner) for runner in ("V1", "V2")]


def without_mla(vllm_env):
    """Return how vLLM fails to build DeepSeek's attention on a CPU, stock or not; None if not."""
    if not vllm_env.at_least("0.28.0"):
        return "NotImplementedError: MLA is not supported on CPU."
    if not vllm_env.at_least("0.29.0"):
        return "ImportError: cannot import name 'compile_flash_attn_varlen_func_from_specs'"
    return None


@pytest.fixture
def speculate(vllm_env):
    return lambda *, overlay: vllm_env.scenario(SPECULATE, overlay=overlay).ok()


@pytest.fixture
def sharing(vllm_env):
    def run(draft, size, runner, *, overlay):
        if not vllm_env.at_least(FIRST_RELEASE.get(draft, "0.25.0")):
            pytest.skip(f"vLLM {vllm_env.release} has no {draft}")
        given = {"cases": SCENARIO, "timeout": 1200}
        result = vllm_env.scenario(SHARING, overlay=overlay, **given).ok()
        case = result[f"{draft} {size} {runner}"]
        expected = without_mla(vllm_env) if draft == "Eagle3DeepseekV2ForCausalLM" else None
        if expected is not None:
            assert case["failed"].startswith(expected)
            pytest.skip(f"vLLM {vllm_env.release} cannot build this draft: {case['failed']}")
        assert "failed" not in case, case
        return case

    return run


@pytest.mark.parametrize("overlay", [False, True], ids=["stock", "overlay"])
def test_speculation_does_not_change_what_is_generated(speculate, overlay):
    result = speculate(overlay=overlay)
    assert result["body_sent"]["tokens"] == result["reference"]
    assert result["head_sent"]["tokens"] == result["reference"]
    # Otherwise the draft could not be accepted: its vocabulary has every token that follows.
    assert result["drafts"]["tokens_in_draft_vocabulary"]


def test_stock_drafts_with_the_targets_first_rows(speculate):
    result = speculate(overlay=False)
    assert result["loaded"]["is_the_targets"]
    assert result["loaded"]["shape"] == [VOCAB, HIDDEN]
    # The refit of the draft's head goes to the target's weight loader, and has another size.
    assert result["refused"] == "AssertionError"
    final = result["head_sent"]
    assert final["is_the_targets"]
    assert final["target_head_as_saved"]
    assert final["drafted"] > 80
    assert final["accepted"] < 0.1 * final["drafted"]
    # There is no error: the number of logits is right, but they are those of other tokens.
    drafts = result["drafts"]
    assert drafts["width"] == DRAFT_VOCAB
    assert drafts["max_abs_error"] > 0.5 * drafts["max_abs_logit"]
    assert drafts["same_token"] < 0.1


def test_overlay_drafts_with_the_drafts_own_head(speculate):
    result = speculate(overlay=True)
    for moment in ("loaded", "body_sent", "head_sent"):
        assert not result[moment]["is_the_targets"]
        assert not result[moment]["same_memory"]
        assert result[moment]["shape"] == [DRAFT_VOCAB, HIDDEN]
        assert result[moment]["target_shape"] == [VOCAB, HIDDEN]
    assert "refused" not in result
    # The head is random first, then the refit's.
    assert result["body_sent"]["accepted"] < 0.1 * result["body_sent"]["drafted"]
    final = result["head_sent"]
    assert final["drafted"] > 40
    assert final["accepted"] > 0.9 * final["drafted"]
    assert final["draft_head_as_saved"]
    assert final["target_head_as_saved"]
    drafts = result["drafts"]
    assert drafts["width"] == DRAFT_VOCAB
    assert drafts["max_abs_error"] < 1e-5 * drafts["max_abs_logit"]
    assert drafts["same_token"] == 1.0


@pytest.mark.parametrize(("draft", "runner"), CASES)
class TestOfAnotherSize:
    def test_stock_shares_the_targets_head(self, sharing, draft, runner):
        case = sharing(draft, "truncated", runner, overlay=False)
        assert case["is_the_targets"]
        assert case["tokens"] == VOCAB
        assert not case["has_refit"]

    def test_overlay_keeps_the_drafts_head(self, sharing, draft, runner):
        case = sharing(draft, "truncated", runner, overlay=True)
        assert not case["is_the_targets"]
        assert case["tokens"] == DRAFT_VOCAB
        assert "refused" not in case, case
        assert case["has_refit"]
        assert case["target_untouched"]


@pytest.mark.parametrize(("draft", "runner"), CASES)
class TestOfTheSameSize:
    def test_stock_shares_and_writes_into_the_targets_head(self, sharing, draft, runner):
        case = sharing(draft, "equal", runner, overlay=False)
        assert case["is_the_targets"]
        assert not case["target_untouched"]

    def test_overlay_shares_and_refuses_to_write(self, sharing, draft, runner):
        case = sharing(draft, "equal", runner, overlay=True)
        assert case["is_the_targets"]
        assert case["tokens"] == VOCAB
        assert case["refused"] == "RuntimeError"
        assert "eagle3-draft-lm-head" in case["message"]
        assert case["target_untouched"]


@pytest.mark.parametrize("overlay", [False, True], ids=["stock", "overlay"])
@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_a_draft_without_a_head_gets_the_targets(sharing, overlay, runner):
    case = sharing(HEADLESS, "equal", runner, overlay=overlay)
    assert case["is_the_targets"]
