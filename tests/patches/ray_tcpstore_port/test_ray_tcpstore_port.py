"""The TCPStore of Ray engines: real stores after real queues, with and without a capability."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.ports import free_band
from tests.support.ray import workers, workers_band

HERE = Path(__file__).parent
ENGINES = 8

LESS = "without the right to ports below 1024"
MORE = "with the right to ports below 1024"


def picked(vllm_env):
    """Tell whether stock vLLM's driver picks a port, which rank 0 binds much later.

    Since 0.29.0 rank 0 holds a store, on a port that the kernel chooses.
    """
    return not vllm_env.at_least("0.29.0")


def shared(vllm_env):
    """Tell whether the engine's own queue takes the port that was picked."""
    return not vllm_env.at_least("0.28.0")


def band(vllm_env, rights):
    """Return a band of its own: the ports of a store are not free at once after its end."""
    return free_band("stores", vllm_env.release, rights)


def stores(vllm_env, rights, *, overlay):
    if rights == MORE and os.geteuid() != 0:
        pytest.skip("needs root")
    if rights == LESS and os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("needs setpriv (util-linux)")
    outcome = vllm_env.scenario(
        HERE / "store.py",
        overlay=overlay,
        env={"VLLM_PORT": str(band(vllm_env, rights)), "VLLM_LOGGING_LEVEL": "ERROR"},
        drop=rights == LESS,
        engines=ENGINES,
    ).ok()
    if rights == MORE and not outcome["below 1024"]:
        pytest.skip("root may not bind ports below 1024 here")
    assert outcome["below 1024"] == (rights == MORE)
    return outcome


def test_stock_without_the_capability_gives_the_store_the_first_port_of_all(vllm_env):
    found = stores(vllm_env, LESS, overlay=False)
    first = band(vllm_env, LESS)
    if shared(vllm_env):
        # The engine's own queue has the port already.
        assert found["one"]["store"] == found["one"]["queue"] == first
        assert "EADDRINUSE" in found["one"]["error"]
        assert all("EADDRINUSE" in engine["error"] for engine in found["many"])
    elif picked(vllm_env):
        assert found["one"]["store"] == first
        assert found["one"]["error"] is None
        assert found["one"]["stranger"], "nobody holds the port that was picked"
        # The first free port: connections of the engine before may linger on the very first port.
        (port,) = {engine["store"] for engine in found["many"]}
        assert port in range(first, first + 100)
        assert [engine["error"] for engine in found["many"]].count(None) == 1
    else:
        assert found["one"]["error"] is None
        assert found["one"]["store"] not in range(first, first + 100)


def test_stock_as_root_gives_all_engines_one_port_below_1024(vllm_env):
    found = stores(vllm_env, MORE, overlay=False)
    first = band(vllm_env, MORE)
    if picked(vllm_env):
        assert found["one"]["stranger"], "nobody holds the port that was picked"
        for engines in (found["many"], found["many, no VLLM_PORT"]):
            (port,) = {engine["store"] for engine in engines}
            assert port < 1024
            assert [engine["error"] for engine in engines].count(None) == 1
    else:
        assert found["one"]["store"] not in range(first, first + 100)


@pytest.mark.parametrize("rights", [LESS, MORE])
@pytest.mark.parametrize("case", ["one", "many", "many, no VLLM_PORT"])
def test_every_engine_meets_at_a_store_that_it_holds(vllm_env, rights, case):
    found = stores(vllm_env, rights, overlay=True)[case]
    engines = [found] if case == "one" else found
    for engine in engines:
        assert engine["error"] is None
        assert not engine["stranger"], "somebody could have taken the port"
        assert engine["sum"] == 3
    ports = [engine[name] for engine in engines for name in ("store", "queue")]
    assert len(set(ports)) == len(ports) == 2 * (1 if case == "one" else ENGINES)
    first = band(vllm_env, rights)
    for engine in engines:
        assert engine["store"] > 1023
        assert (engine["store"] in range(first + 32, first + 64)) == (case != "many, no VLLM_PORT")


def test_stock_version_1_tells_its_workers_a_port_that_nobody_holds(vllm_env):
    told = workers(vllm_env, overlay=False)["v1 unset"]
    port = int(told["init method"].rpartition(":")[2])
    assert port not in told["listening"]


@pytest.mark.parametrize("case", ["v1 unset", "v1 value"])
def test_version_1_meets_at_a_store_that_rank_0_holds(vllm_env, case):
    told = workers(vllm_env, overlay=True)[case]
    port = int(told["init method"].rpartition(":")[2])
    first = workers_band(vllm_env)
    assert port in told["listening"]
    assert port in range(first + 32, first + 64)
