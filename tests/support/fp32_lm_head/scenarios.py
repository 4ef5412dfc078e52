"""What the tests of the fp32 LM head on a CPU and on a GPU share: scenarios and constants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.environment import Environment, Outcome

HERE = Path(__file__).parent
SWITCH = "NRL_VLLM_FP32_LM_HEAD"
ON = {SWITCH: "1"}
FP32, BF16 = "torch.float32", "torch.bfloat16"


def heads(environment: Environment, *, overlay: bool, on: bool, device: str = "cpu") -> Any:
    """Give what the heads of models and layers compute, without an engine."""
    env = ON if on else {}
    return environment.scenario(HERE / "heads.py", overlay=overlay, env=env, device=device).ok()


def engine(
    environment: Environment, *, overlay: bool, on: bool, device: str = "cpu", **options: Any
) -> Outcome:
    """Run an engine; ``options`` are arguments of ``LLM``."""
    env = ON if on else {}
    given = {"device": device, "engine": options}
    return environment.scenario(HERE / "engine.py", overlay=overlay, env=env, **given)


def memory(environment: Environment, **sizes: int) -> Any:
    """Give what the head of a real vocabulary allocates on a GPU."""
    script = HERE / "memory.py"
    return environment.scenario(script, overlay=True, env=ON, device="cuda", **sizes).ok()
