"""Message queues between nodes, made by real processes with real zmq sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ports import free_band

HERE = Path(__file__).parent
BAND = free_band("queues")
QUEUE_PORTS = [*range(BAND + 64, BAND + 100), *range(BAND, BAND + 32)]

PROCESSES, QUEUES = 8, 4
GATED = {
    "processes": PROCESSES,
    "queues": QUEUES,
    "trials": 3,
    "address": "127.0.0.1",
    "gated": True,
}
VOLUME = {**GATED, "gated": False, "trials": 20}
IPV6 = {**VOLUME, "address": "::1", "trials": 5}

IN_THE_BAND = ("free", "reserved", "master", "ipv6")
BY_THE_KERNEL = ("exhausted", "unset", "kubernetes")


def probes(vllm_env):
    """Tell whether stock vLLM probes a port and binds it later; since 0.28.0 the kernel chooses."""
    return not vllm_env.at_least("0.28.0")


def race(vllm_env, *, overlay):
    outcome = vllm_env.scenario(
        HERE / "race.py",
        overlay=overlay,
        env={"VLLM_PORT": str(BAND), "VLLM_LOGGING_LEVEL": "ERROR"},
        rounds=[GATED, VOLUME, IPV6],
    )
    return dict(zip(("gated", "volume", "ipv6"), outcome.ok(), strict=True))


def edges(vllm_env, *, overlay, only=()):
    outcome = vllm_env.scenario(HERE / "edges.py", overlay=overlay, band=BAND, only=only)
    return outcome.ok()


def errors(trials):
    return [error for trial in trials for error in trial["errors"]]


def ports(trials):
    return {port for trial in trials for port in trial["ports"]}


def test_stock_loses_the_race_or_leaves_the_band(vllm_env):
    rounds = race(vllm_env, overlay=False)
    if probes(vllm_env):
        for trial in rounds["gated"]:
            assert len(trial["errors"]) >= QUEUES, "of those told the same port one has got it"
            assert all("Address already in use" in error for error in trial["errors"])
        assert errors(rounds["volume"])
    else:
        assert not errors(rounds["gated"]) + errors(rounds["volume"])
        assert not ports(rounds["gated"] + rounds["volume"]) & set(range(BAND, BAND + 100))


@pytest.mark.parametrize("name", ["gated", "volume", "ipv6"])
def test_no_process_fails_and_every_message_arrives(vllm_env, name):
    for trial in race(vllm_env, overlay=True)[name]:
        assert trial["errors"] == []
        assert len(set(trial["ports"])) == len(trial["ports"]) == PROCESSES * QUEUES
        assert trial["received"] == PROCESSES * QUEUES
        assert set(trial["ports"]) <= set(QUEUE_PORTS)


def test_stock_in_the_same_situations(vllm_env):
    cases = ("free", "exhausted", "kubernetes")
    found = edges(vllm_env, overlay=False, only=cases)
    if probes(vllm_env):
        assert found["exhausted"]["port"] >= BAND + 100, "the next engine's"
        assert found["kubernetes"]["error"][0] == "ValueError"
    else:
        assert found["free"]["port"] not in range(BAND, BAND + 100)


def test_what_is_advertised_is_what_is_listened_on(vllm_env):
    for name, outcome in edges(vllm_env, overlay=True).items():
        if "error" not in outcome:
            assert [port for _, port, *_ in outcome["listening"]] == [outcome["port"]], name
            assert outcome["received"], name


@pytest.mark.parametrize("name", IN_THE_BAND)
def test_in_the_band(vllm_env, name):
    outcome = edges(vllm_env, overlay=True)[name]
    assert outcome["port"] in QUEUE_PORTS
    assert outcome["warnings"] == []


def test_the_only_port_left_is_found(vllm_env):
    """The others are bound but not listened on, which a bind with SO_REUSEADDR would not notice."""
    assert edges(vllm_env, overlay=True)["reserved"]["port"] == QUEUE_PORTS[-1]


def test_ports_of_the_data_parallel_master_are_left_alone(vllm_env):
    assert edges(vllm_env, overlay=True)["master"]["port"] not in range(BAND + 64, BAND + 74)


@pytest.mark.parametrize("name", BY_THE_KERNEL)
def test_by_the_kernel(vllm_env, name):
    outcome = edges(vllm_env, overlay=True)[name]
    assert outcome["port"] not in range(BAND, BAND + 100)
    # One warning if something is wrong; none if the kernel's choice was asked for.
    assert len(outcome["warnings"]) == (0 if name == "unset" else 1)


def test_another_error_is_raised_at_once(vllm_env):
    outcome = edges(vllm_env, overlay=True)["foreign address"]
    assert "192.0.2.77" in outcome["error"][2]
    assert outcome["warnings"] == []
