"""The LM head in fp32: what it computes, who gets it, what is refused, and that off is stock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.fp32_lm_head.scenarios import BF16, FP32, SWITCH, engine, heads

if TYPE_CHECKING:
    from tests.support.environment import Environment

GATHER = Path(__file__).parent / "gather.py"

# Limits for the mean error of log-probabilities (nats) over the whole distribution: an fp32 head is
# below the first, a bf16 head above the second.
FP32_ERROR = 1e-6
BF16_ERROR = 1e-3

OURS = (
    "untied",
    "tied",
    "multimodal",
    "scaled_capped_padded_biased",
    "three_dimensional",
    "left_out_of_quantization",
    "lora",
    "draft",
    "travels",
)
LEFT_OUT_NATIVE = "left_out_of_quantization_native"
NATIVE = ("untied_native", "multimodal_native", LEFT_OUT_NATIVE)

TO_CHANGE = "hf_overrides"
REFUSED = {
    "value true": (SWITCH, "'true'", "set it to 1", "0"),
    "value yes": (SWITCH, "'yes'", "set it to 1", "0"),
    "value 2": (SWITCH, "'2'", "set it to 1", "0"),
    "value  1": (SWITCH, "' 1'", "set it to 1", "0"),
    "override model": (SWITCH, "head_dtype='model'", TO_CHANGE),
    "override bfloat16": (SWITCH, "head_dtype='bfloat16'", TO_CHANGE),
    "override float16": (SWITCH, "head_dtype='float16'", TO_CHANGE),
    "checkpoint": (SWITCH, "head_dtype='bfloat16'", "config.json"),
    "nested": (SWITCH, "text_config.head_dtype='bfloat16'", TO_CHANGE),
    "platform": (SWITCH, "does not support fp32"),
    "quantized": (SWITCH, "lm_head", "LinearMethod", "exclude list"),
    "own projection": (SWITCH, "Own", "LogitsProcessor", f"Set {SWITCH}=0"),
    "own configuration": (SWITCH, "logits_processor", "torch.bfloat16", f"Set {SWITCH}=0"),
}
ACCEPTED = (
    "value ",
    "value 0",
    "override float32",
    "override off",
    "quantized off",
    "own projection off",
)


def native_head(vllm_env: Environment) -> bool:
    """Tell whether vLLM itself runs the head in fp32 when hf_overrides asks for it."""
    return vllm_env.at_least("0.26.0")


def native_refuses_left_out(vllm_env: Environment) -> bool:
    """Tell whether that is refused for a head that a quantization leaves out."""
    return native_head(vllm_env) and not vllm_env.at_least("0.29.0")


def cache_follows(vllm_env: Environment) -> bool:
    """Tell whether the cached draft distribution has the head's dtype; before, it is in fp32."""
    return vllm_env.at_least("0.28.0")


@pytest.mark.sources
def test_stock_vllm_does_not_know_the_variable(vllm_env: Environment) -> None:
    cases = heads(vllm_env, overlay=False, on=True)["cases"]
    for name in OURS:
        assert cases[name]["dtype"] == BF16, name
        assert cases[name]["logprobs"]["mean"] > BF16_ERROR, name
    native = cases["untied_native"]
    assert native["dtype"] == (FP32 if native_head(vllm_env) else BF16)
    # vLLM's own setting does not reach a nested language model, in any release.
    assert cases["multimodal_native"]["dtype"] == BF16
    left_out = cases[LEFT_OUT_NATIVE]
    if native_refuses_left_out(vllm_env):
        assert "only supported for an unquantized lm_head" in left_out["error"]
    else:
        assert left_out["dtype"] == native["dtype"]


@pytest.mark.sources
@pytest.mark.parametrize("name", OURS)
def test_the_head_is_exact(vllm_env: Environment, name: str) -> None:
    result = heads(vllm_env, overlay=True, on=True)["cases"][name]
    assert result.get("error") is None
    assert result["dtype"] == FP32
    assert result["logprobs"]["mean"] < FP32_ERROR
    assert result["logits"]["mean"] < FP32_ERROR
    # No entry of the distribution has an error of bf16's size.
    assert result["logprobs"]["max"] < 100 * FP32_ERROR


def test_native_setting_and_variable_agree(vllm_env: Environment) -> None:
    cases = heads(vllm_env, overlay=True, on=True)["cases"]
    for name in NATIVE:
        assert cases[name]["dtype"] == FP32
        assert cases[name]["logprobs"]["mean"] < FP32_ERROR


def test_the_tops_of_the_vocabulary_are_exact(vllm_env: Environment) -> None:
    result = heads(vllm_env, overlay=True, on=True)["cases"]["scaled_capped_padded_biased"]
    assert result["top"] == 1.0
    if cache_follows(vllm_env):  # which also have get_top_k_tokens
        assert result["top_k"] == 1.0
        assert result["top_k_error"] < FP32_ERROR


def test_lora_changes_the_exact_logits(vllm_env: Environment) -> None:
    result = heads(vllm_env, overlay=True, on=True)["cases"]["lora"]
    assert result["change"] > 0.1


def test_left_out_head_has_the_method_that_is_meant(vllm_env: Environment) -> None:
    result = heads(vllm_env, overlay=True, on=True)["cases"]["left_out_of_quantization"]
    assert result["method"] == "UnquantizedLinearMethod"


@pytest.mark.parametrize("on", [True, False])
def test_the_cached_draft_distribution_has_the_dtype_of_the_drafts_logits(
    vllm_env: Environment, *, on: bool
) -> None:
    result = heads(vllm_env, overlay=True, on=on)["cases"]["draft"]
    assert result["dtype"] == (FP32 if on else BF16)
    if cache_follows(vllm_env):
        assert result["cached"] == result["dtype"]
    else:
        assert "cached" not in result


def test_off_is_stock_to_the_bit(vllm_env: Environment) -> None:
    stock = heads(vllm_env, overlay=False, on=True)["cases"]
    off = heads(vllm_env, overlay=True, on=False)["cases"]
    assert set(off) == {*OURS, *NATIVE}
    for name, result in off.items():
        if name == LEFT_OUT_NATIVE and native_refuses_left_out(vllm_env):
            # Stock refuses what the overlay accepts, so there is nothing to compare with.
            assert "error" in stock[name]
            assert result["dtype"] == FP32
        else:
            assert result == stock[name], name


def test_it_is_part_of_the_compile_hash(vllm_env: Environment) -> None:
    stock, off, on = (
        heads(vllm_env, overlay=overlay, on=on)["cases"]["travels"]
        for overlay, on in ((False, True), (True, False), (True, True))
    )
    assert off["model_hash"] == stock["model_hash"]
    assert off["hash"] == stock["hash"]
    assert on["model_hash"] != off["model_hash"]
    assert on["hash"] != off["hash"]


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_to_start(vllm_env: Environment, name: str) -> None:
    message = heads(vllm_env, overlay=True, on=True)["refused"][name]
    assert message is not None
    for part in REFUSED[name]:
        assert part in message
    # Stock goes on, with the head in bf16.
    assert heads(vllm_env, overlay=False, on=True)["refused"][name] is None


@pytest.mark.parametrize("name", ACCEPTED)
def test_it_starts(vllm_env: Environment, name: str) -> None:
    assert heads(vllm_env, overlay=True, on=True)["refused"][name] is None


def test_every_refusal_is_looked_at(vllm_env: Environment) -> None:
    assert set(heads(vllm_env, overlay=True, on=True)["refused"]) == {*REFUSED, *ACCEPTED}


def test_two_ranks_gather_what_one_computes(vllm_env: Environment) -> None:
    results = vllm_env.scenario(GATHER, overlay=True, device="cpu").ok()
    assert results["off"]["dtype"] == BF16
    assert results["off"]["logprobs"]["mean"] > BF16_ERROR
    assert results["on"]["dtype"] == FP32
    assert results["on"]["logprobs"]["mean"] < FP32_ERROR
    assert results["on"]["top"] == 1.0


def test_engine_returns_exact_logprobs(vllm_env: Environment) -> None:
    outcome = engine(vllm_env, overlay=True, on=True)
    result = outcome.ok()
    assert result["weight"] == BF16
    assert result["head"]["dtype"] == FP32
    for what in ("distribution", "sampled", "prompt", "pairing"):
        assert result[what]["mean"] < FP32_ERROR, what
    assert result["head"]["logits"]["mean"] < FP32_ERROR
    assert outcome.output.count("LM head projection dtype: torch.float32") == 1


def test_stock_engine_returns_those_of_a_bf16_head(vllm_env: Environment) -> None:
    result = engine(vllm_env, overlay=False, on=True).ok()
    assert result["head"]["dtype"] == BF16
    for what in ("distribution", "sampled", "prompt"):
        assert result[what]["mean"] > BF16_ERROR, what
    # The rows are paired rightly, so the error is the head's.
    assert result["pairing"]["mean"] < FP32_ERROR
