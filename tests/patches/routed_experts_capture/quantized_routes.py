"""What the tests of quantized models share: how captured routes compare with transformers'."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.patches.routed_experts_capture.quantized import LENGTHS, NEW_TOKENS

# Of the scores that experts are chosen by; rounding to bf16 moves them by some hundredths.
MARGIN = 0.3


class Routes(NamedTuple):
    """How many rows (one a token and MoE layer) there are, are wrong, and are all zero."""

    rows: int
    wrong: int
    zero: int


def compare(answers: list[dict[str, Any]]) -> Routes:
    """Compare what was captured with transformers; the order of a row's ids is not promised."""
    rows = wrong = zero = 0
    for answer in answers:
        assert answer["reference"]["margin"] > MARGIN, "routes that rounding could change"
        for layer, expected in enumerate(answer["reference"]["experts"]):
            captured = [sorted(token[layer]) for token in answer["experts"]]
            if not expected:  # a dense layer
                assert not any(map(any, captured))
                continue
            assert len(captured) == len(expected)
            rows += len(expected)
            wrong += sum(a != b for a, b in zip(captured, expected, strict=True))
            zero += sum(not any(ids) for ids in captured)
    return Routes(rows, wrong, zero)


def all_right(moe_layers: int) -> Routes:
    """Return what to expect: a row for every token but the last, which was never an input."""
    tokens = sum(length + NEW_TOKENS - 1 for length in LENGTHS)
    return Routes(tokens * moe_layers, wrong=0, zero=0)
