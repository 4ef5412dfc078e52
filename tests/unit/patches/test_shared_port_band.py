"""The port band: which ports are candidates, and how one is taken, with real sockets."""

from __future__ import annotations

import errno
import logging
import os
import socket

import pytest
from vllm_nemo.patches.shared import port_band

from tests.support.ports import free_band


@pytest.fixture(autouse=True)
def each_value_is_warned_about_once_a_test():
    port_band._warn_no_port.cache_clear()


@pytest.mark.parametrize(
    "value", [None, "", "0", "-1", "65536", "tcp://10.1.1.1:80", "seven thousand"]
)
def test_no_band_without_a_port(value):
    environ = {} if value is None else {"VLLM_PORT": value}
    assert port_band.first_port(environ) is None
    assert port_band.queue_ports(environ) == port_band.store_ports(environ) == []


@pytest.mark.parametrize("value", [None, "", "0"])
def test_asking_for_any_port_is_not_told(caplog, value):
    port_band.queue_ports({} if value is None else {"VLLM_PORT": value})
    assert not caplog.records


@pytest.mark.parametrize("value", ["-1", "65536", "tcp://10.1.1.1:80"])
def test_a_value_that_is_no_port_is_told_once(caplog, value):
    for _ in range(3):
        port_band.queue_ports({"VLLM_PORT": value})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert value in record.getMessage()
    assert record.name.startswith("vllm."), "vLLM's handlers are on its own loggers"


def test_queues_and_the_store_share_no_port_and_fill_the_band():
    environ = {"VLLM_PORT": "7000"}
    queue, store = port_band.queue_ports(environ), port_band.store_ports(environ)
    assert sorted(queue + store) == list(range(7000, 7100))
    assert store == list(range(7032, 7064))


def test_queues_come_last_to_where_vllm_begins_to_probe():
    queue = port_band.queue_ports({"VLLM_PORT": "7000"})
    assert queue == [*range(7064, 7100), *range(7000, 7032)]


@pytest.mark.parametrize(
    ("master", "gone"),
    [
        ("7000", set(range(7000, 7010))),
        ("6995", set(range(7000, 7005))),
        ("7060", set(range(7060, 7070))),
        ("7098", {7098, 7099}),
        ("6990", set()),
        ("7100", set()),
        ("0", set()),
        ("", set()),
        ("none", set()),
    ],
)
def test_ports_of_the_data_parallel_master_are_nobodys(master, gone):
    environ = {"VLLM_PORT": "7000", "VLLM_DP_MASTER_PORT": master}
    found = port_band.queue_ports(environ) + port_band.store_ports(environ)
    assert set(range(7000, 7100)) - set(found) == gone


@pytest.mark.parametrize("first", [65436, 65500, 65535])
def test_no_candidate_is_beyond_the_last_port(caplog, first):
    environ = {"VLLM_PORT": str(first)}
    found = port_band.queue_ports(environ) + port_band.store_ports(environ)
    assert sorted(found) == list(range(first, 65536))
    # Above 65503 no port is left for the store, so there is a warning.
    assert len(caplog.records) == (1 if first > 65535 - 32 else 0)


def test_the_first_free_port_is_taken_and_held():
    band = free_band("units")
    with socket.create_server(("127.0.0.1", band)):
        listener = port_band.listen("127.0.0.1", [band, band + 1, band + 2], "a test")
    with listener:
        assert listener.getsockname() == ("127.0.0.1", band + 1)
        with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", band + 1)):
            pass
        with socket.create_connection(("127.0.0.1", band + 1)):
            pass
    assert listener.fileno() == -1


def test_a_port_that_is_bound_but_not_listened_on_is_not_free():
    band = free_band("units")
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", band))
        with port_band.listen("127.0.0.1", [band, band + 1], "a test") as listener:
            assert listener.getsockname()[1] == band + 1


def test_the_kernel_chooses_when_asked_to(caplog):
    with port_band.listen("127.0.0.1", [], "a test") as listener:
        assert listener.getsockname()[1] > 0
    assert not caplog.records


def test_an_exhausted_band_is_told_once(caplog):
    band = free_band("units")
    with (
        socket.create_server(("127.0.0.1", band)),
        socket.create_server(("127.0.0.1", band + 1)),
        port_band.listen("127.0.0.1", [band, band + 1], "a test") as listener,
    ):
        chosen = listener.getsockname()[1]
        assert chosen not in (band, band + 1)
    (record,) = caplog.records
    for part in (str(band), str(band + 1), str(chosen), "a test"):
        assert part in record.getMessage()


def test_an_address_of_another_machine_is_refused_at_once():
    with pytest.raises(OSError, match=r"192\.0\.2\.77, port 7000, for a test") as caught:
        port_band.listen("192.0.2.77", [7000, 7001], "a test")
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_name_is_refused_at_once():
    with pytest.raises(OSError, match=r"'nowhere\.invalid', for a test: not a numeric address"):
        port_band.listen("nowhere.invalid", [7000], "a test")


def test_a_port_without_the_right_to_it_is_refused_at_once():
    try:
        with socket.create_server(("127.0.0.1", 1)):
            pytest.skip("this process may bind ports below 1024")
    except PermissionError:
        pass
    with pytest.raises(PermissionError, match="port 1, for a test"):
        port_band.listen("127.0.0.1", [1, free_band("units")], "a test")


def test_all_addresses_with_both_protocols():
    with port_band.listen("", [], "a test") as listener:
        port = listener.getsockname()[1]
        hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        for host in hosts:
            with socket.create_connection((host, port)):
                pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6():
    band = free_band("units")
    with port_band.listen("::1", [band], "a test") as listener:
        assert listener.getsockname()[:2] == ("::1", band)
        assert not os.get_inheritable(listener.fileno())
        assert not os.get_blocking(listener.fileno())
