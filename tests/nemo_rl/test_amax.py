"""ModelOpt's amax aliases, against vLLM's real expert loader and against errors half-way."""

from __future__ import annotations

from pathlib import Path

AMAX = Path(__file__).parent / "amax.py"
UNDO = Path(__file__).parent / "amax_undo.py"


def test_the_real_loader_needs_the_aliases_and_loads_with_them(vllm_env):
    result = vllm_env.scenario(AMAX, overlay=True).ok()
    assert result["plain"] == "AttributeError"
    # 10 * expert + place in the stream; w1's and w3's quantizers are one, and the larger wins.
    for place, name in enumerate(
        ("w13_input_quantizer", "w13_weight_quantizer", "w2_input_quantizer", "w2_weight_quantizer")
    ):
        expected = [10.0 * expert + place + 2 for expert in range(4)]
        assert result["aliased"][f"{name}._amax"] == expected
    assert result["registered_the_same"]
    assert result["left"] == []


def test_aliases_come_and_go(vllm_env):
    result = vllm_env.scenario(UNDO, overlay=True).ok()
    assert result["open"] == ["w13_input_quantizer._amax", "w2_x_quantizer.pre_amax"]
    assert result["same_object"]
    assert result["kept"] == "the caller's"
    assert result["nested_outer"] == result["open"]
    assert result["after_error"] == []
    assert result["after_setup_error"] == []
    assert result["setup_error"] == "RuntimeError"
    assert result["again"] == result["open"]
    assert result["closed"] == []
