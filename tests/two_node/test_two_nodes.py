"""One real engine across two real Ray nodes. Slow, needs root: ``ci/two-node`` runs it."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from harness import engine

from tests.two_node.cluster import ADDRESSES, cluster, missing

pytestmark = pytest.mark.two_node

HERE = Path(__file__).parent
FIRST = 7000
QUEUES = {*range(FIRST, FIRST + 32), *range(FIRST + 64, FIRST + 100)}
STORES = range(FIRST + 32, FIRST + 64)
TOKENS = 8


@dataclasses.dataclass
class Run:
    """How an engine ended, its result, and the networks in which the wrapper ran."""

    returncode: int
    output: str
    result: Any
    wrapped: set[str]

    def ok(self) -> Any:
        assert self.returncode == 0, self.output[-8000:]
        return self.result


@pytest.fixture(scope="module")
def model(vllm_env, tmp_path_factory):
    """Save a model; give its directory, the prompts and the tokens of transformers."""
    folder = tmp_path_factory.mktemp("model")
    told = vllm_env.scenario(
        HERE / "model.py", overlay=False, model=str(folder), tokens=TOKENS
    ).ok()
    return {"model": str(folder), **told}


def engines(vllm_env, model, *, overlay, versions):
    """Run the engine in a new cluster, once with each version of the executor."""
    if lacking := missing():
        pytest.skip(f"two nodes need {lacking}")
    # Ray's compiled graph (version 1) looks for these logical ids in its workers.
    settings = {"CUDA_VISIBLE_DEVICES": "0,1"}
    if not overlay:
        settings["NRL_VLLM_OVERLAY"] = "off"
    runs = {}
    with cluster(vllm_env.python, settings) as nodes:
        for version in versions:
            wrapper, ran = nodes.home / f"python-{version}", nodes.home / f"ran-{version}"
            wrapper.write_text(
                f'#!/bin/sh\nreadlink /proc/self/ns/net >> {ran}\nexec {vllm_env.python} "$@"\n'
            )
            wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
            written = nodes.home / f"result-{version}.json"
            argument = json.dumps(
                {
                    "model": model["model"],
                    "prompts": model["prompts"],
                    "engine": engine.arguments(max_num_batched_tokens=64),
                }
            )
            environ = {
                "NRL_VLLM_RAY_PY_EXECUTABLE": str(wrapper),
                "SCENARIO_RESULT": str(written),
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_PORT": str(FIRST),
                "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": str(version - 1),
            }
            returncode, output = nodes.run(HERE / "engine.py", argument, environ)
            result = json.loads(written.read_text()) if written.exists() else None
            wrapped = set(ran.read_text().split()) if ran.exists() else set()
            runs[version] = Run(returncode, output, result, wrapped)
    return runs


@pytest.fixture(scope="module")
def stock(vllm_env, model):
    return engines(vllm_env, model, overlay=False, versions=[2])


@pytest.fixture(scope="module")
def overlay(vllm_env, model):
    return engines(vllm_env, model, overlay=True, versions=[2, 1])


def port(address):
    return int(address.rpartition(":")[2])


def test_stock_fails_or_leaves_the_band(vllm_env, model, stock):
    run = stock[2]
    assert run.wrapped == set()
    if not vllm_env.at_least("0.28.0"):
        # RayExecutorV2 cannot start without the right to ports below 1024.
        assert run.returncode != 0
        assert "EADDRINUSE" in run.output
    else:
        told = run.ok()
        assert told["tokens"] == model["tokens"]
        queues = {port(address) for address in told["queues"] if address}
        assert queues
        assert not queues & set(range(FIRST, FIRST + 100))
        store = port(told["workers"][0]["init method"])
        # 0.28.0 starts, with its store on the first port of the band.
        assert store not in STORES if vllm_env.at_least("0.29.0") else store == FIRST


@pytest.mark.parametrize(
    ("version", "executor"), [(2, "RayExecutorV2"), (1, "RayDistributedExecutor")]
)
def test_the_engine_starts_and_generates_what_transformers_does(model, overlay, version, executor):
    told = overlay[version].ok()
    assert told["executor"] == executor
    assert told["tokens"] == model["tokens"]
    assert len({worker["network"] for worker in told["workers"]}) == 2, "a worker on each node"


@pytest.mark.parametrize("version", [2, 1])
def test_store_and_queues_are_in_the_band(overlay, version):
    told = overlay[version].ok()
    stores = {worker["init method"] for worker in told["workers"]}
    assert len(stores) == 1
    (store,) = stores
    assert port(store) in STORES
    assert port(store) in told["listening"][ADDRESSES[0]]
    groups = [worker["group queue"] for worker in told["workers"] if worker["group queue"]]
    queues = [address for address in told["queues"] if address] + groups
    # Version 2: the driver's, and the worker's on the other node. Both: that of the spanning group.
    assert len(queues) >= (3 if version == 2 else 1)
    for address in queues:
        host = address.removeprefix("tcp://").rpartition(":")[0]
        assert port(address) in QUEUES
        assert port(address) in told["listening"][host]


@pytest.mark.parametrize("version", [2, 1])
def test_the_interpreter_runs_on_both_nodes(overlay, version):
    told = overlay[version].ok()
    assert overlay[version].wrapped == {worker["network"] for worker in told["workers"]}
