"""Whole engines: tokens compared with stock vLLM, HTTP, two ranks, and what each process runs.

Routes need a model with experts: tests/patches/routed_experts_capture has its own engines.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.environment import Environment

HERE = Path(__file__).parent
SCENARIO = HERE / "generation.py"
# Every switch that a dense model on one node can have; the scenario adds a band of ports.
ON = {"NRL_VLLM_FP32_LM_HEAD": "1"}
# Two ranks add in another order, in half precision, which may change a greedy choice closer than
# this.
ROUNDING = 0.03


@pytest.fixture
def generate(vllm_env, tmp_path):
    def run(*, overlay, serve=False, on=False):
        env = {"PYTHONPATH": str(HERE / "watch"), **(ON if on else {})}
        # No argument of the scenario, so that equal runs are run once.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WATCH_DIRECTORY", str(tmp_path))
            outcome = vllm_env.scenario(
                SCENARIO, overlay=overlay, env=env, serve=serve, ranks=2 if on else 1
            )
        return {**outcome.ok(), "output": outcome.output}

    return run


def test_switched_off_the_server_answers_as_stock_to_the_bit(generate) -> None:
    stock = generate(overlay=False)
    served = generate(overlay=True, serve=True)
    assert served["tokens"] == stock["tokens"]
    assert served["logprobs"] == stock["logprobs"]
    # The patch logs the dtype of the head that it leaves alone, once.
    assert served["output"].count("LM head projection dtype: torch.float16") == 1


def test_switched_on_two_ranks_choose_the_same_tokens(generate) -> None:
    stock = generate(overlay=False)
    on = generate(overlay=True, on=True)
    compared = 0
    for tokens, margins, others in zip(
        stock["tokens"], stock["margins"], on["tokens"], strict=True
    ):
        clear = itertools.takewhile(lambda margin: margin > ROUNDING, margins)
        count = len(list(clear))
        assert others[:count] == tokens[:count]
        compared += count
    assert compared > len(stock["tokens"]), "the model is of no use: its choices are too close"
    assert on["logprobs"] != stock["logprobs"]


@pytest.mark.parametrize(
    ("how", "roles"),
    [
        ({"on": True}, {"generation.py": 1, "EngineCore": 1, "Worker": 2}),
        ({"serve": True}, {"vllm serve": 1, "EngineCore": 1, "Worker": 1}),
    ],
    ids=["two ranks", "vllm serve"],
)
def test_every_process_runs_the_overlay(vllm_env, generate, how, roles) -> None:
    overlay = overlay_files(vllm_env)
    found = dict.fromkeys(roles, 0)
    for process in generate(overlay=True, **how)["processes"]:
        role = next((role for role in roles if role in process["title"]), None)
        if role is not None:
            found[role] += 1
            loaded = {name: process["files"][name] for name in overlay if name in process["files"]}
            assert loaded, f"{process['title']} has loaded no module that the overlay patches"
            assert loaded == {name: overlay[name] for name in loaded}, process["title"]
    assert found == roles


def test_switched_off_no_process_does(vllm_env, generate) -> None:
    overlay = set(overlay_files(vllm_env).values())
    processes = generate(overlay=False)["processes"]
    assert len(processes) > 2
    for process in processes:
        assert not overlay & set(process["files"].values()), process["title"]


def overlay_files(vllm_env: Environment) -> dict[str, str]:
    """Return the modules that the installed wheel serves, and their files."""
    (root,) = vllm_env.root.glob("lib/python*/site-packages/vllm_nemo/_modules")
    names = {path: path.relative_to(root).with_suffix("") for path in root.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): str(p) for p, name in names.items()}
