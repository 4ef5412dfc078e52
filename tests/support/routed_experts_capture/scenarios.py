"""What the tests of routed experts share: engines of quantized models, and how routes compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.routed_experts_capture.quantized import LENGTHS, NEW_TOKENS

if TYPE_CHECKING:
    from tests.support.environment import Environment

QUANTIZED = Path(__file__).parent / "quantized.py"

# For an engine that refuses to start. In a process of its own, which vLLM forks, it may hang when
# it ends, because the fork leaves ZeroMQ in a bad state.
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

# For each model: its family, the form of its experts, and how many MoE layers it has.
MODELS = {
    "gpt-oss": ("gpt-oss", "mxfp4", 3),
    "glm": ("glm", "bf16", 2),
    "glm in NVFP4": ("glm", "nvfp4", 2),
}

# The least margin between the scores of experts; rounding to bf16 moves them by some hundredths.
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


def all_right(model: str) -> Routes:
    """Return what to expect: a row for every token but the last, which was never an input."""
    tokens = sum(length + NEW_TOKENS - 1 for length in LENGTHS)
    return Routes(tokens * MODELS[model][2], wrong=0, zero=0)


def quantized(
    environment: Environment, model: str, *, overlay: bool, device: str = "cpu", **options: Any
) -> Any:
    """Give the routes of a quantized model before and after a refit; ``options`` are of ``LLM``."""
    family, form, _ = MODELS[model]
    # With the overlay the engine is a process of its own, as it is for users.
    env = {} if overlay else IN_PROCESS
    given = {"device": device, "engine": options, "family": family, "form": form}
    return environment.scenario(QUANTIZED, overlay=overlay, env=env, **given).ok()


def assert_right(result: dict[str, Any], model: str, kernel: str | None = None) -> None:
    """Assert that every row is right before and after the refit, and which kernel it came from."""
    assert "refused" not in result, result
    assert kernel is None or result["kernels"] == [kernel]
    assert "refit" not in result, result["refit"]
    for when in ("before", "after"):
        assert compare(result[when]) == all_right(model), when
