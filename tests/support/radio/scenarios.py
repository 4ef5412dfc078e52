"""What the tests of the three RADIO patches share: the scenarios, and the keys of their results."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
TOWER = HERE / "tower.py"
ENGINE = HERE / "engine.py"
RANKS = HERE / "ranks.py"
# For PYTHONPATH, where a scenario imports Nemotron VL.
TORCHVISION_STUB = HERE / "torchvision_stub"

FORMATS = ("legacy", "remote", "transformers", "hybrid")
DTYPES = ("float32", "bfloat16")
KINDS = ("image", "video", "packed")
STEPS = (
    "direct transformers",
    "transfer hybrid",
    "reload remote",
    "reload transformers",
    "direct legacy",
    "transfer remote",
)
PARAMETERS = 32  # of the two-layer tower

# The largest difference from transformers behind the bf16 projector, whose two matrix products
# round differently. Features are of scale 4 to 7, and up to 32. A wrong weight makes more than 1.
ROUNDING = 0.5
WRONG = 1.0


def tower(vllm_env, *, overlay, device="cpu"):
    dtypes = list(DTYPES)
    return vllm_env.scenario(TOWER, overlay=overlay, device=device, dtypes=dtypes).ok()


def engine(vllm_env, *, overlay, device="cpu"):
    # The engine runs eagerly; without dynamo, no kernel is compiled for resizing images either.
    env = {"PYTHONPATH": str(TORCHVISION_STUB), "TORCHDYNAMO_DISABLE": "1"}
    return vllm_env.scenario(ENGINE, overlay=overlay, env=env, device=device).ok()


def same(judged):
    """Whether features are transformers' bit by bit, for every kind of input."""
    return all(kind["equal"] for kind in judged["features"].values())


def least_difference(compared):
    return min(kind["difference"] for kind in compared.values())


def difference(compared):
    return max(kind["difference"] for kind in compared.values())
