"""Make one queue at a time, in the situations that concern zmq as well as the port band.

Arguments: ``band``, the first of 200 ports that are free; ``only``, the cases to run. Result: for
each case the warnings and the error, or the port that the queue advertises, the addresses that the
process has come to listen on by the kernel's account, and whether a message came through.
"""

import json
import logging
import os
import socket
import sys
from pathlib import Path

import psutil

from tests.support.vllm_internals import MessageQueue

BAND = 100


class Warnings(logging.Handler):
    """Counts what is logged as a warning or worse, by whomever."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def listening():
    """Return the addresses and ports that this process listens on."""
    connections = psutil.Process().net_connections(kind="tcp")
    return {tuple(entry.laddr) for entry in connections if entry.status == psutil.CONN_LISTEN}


def occupy(ports, *, listen=True):
    """Take ports; without listening on them, a bind with SO_REUSEADDR would succeed as well."""
    held = []
    for port in ports:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        if listen:
            other.listen()
        held.append(other)
    return held


def case(port, *, held=(), address="127.0.0.1", master=None):
    environment = {"VLLM_PORT": port, "VLLM_DP_MASTER_PORT": master}
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = str(value)
    heard = Warnings()
    loggers = [logging.getLogger(), logging.getLogger("vllm")]
    for logger in loggers:
        logger.addHandler(heard)
    before = listening()
    outcome = {}
    try:
        queue = MessageQueue(1, 0, connect_ip=address)
    except Exception as error:  # noqa: BLE001 - the test judges it
        outcome["error"] = [type(error).__name__, getattr(error, "errno", None), str(error)]
    else:
        handle = queue.export_handle()
        outcome["port"] = int(handle.remote_subscribe_addr.rpartition(":")[2])
        outcome["listening"] = sorted(listening() - before)
        reader = MessageQueue.create_from_handle(handle, 0)
        queue.wait_until_ready()
        reader.wait_until_ready()
        queue.enqueue({"sent": port})
        outcome["received"] = reader.dequeue(timeout=30) == {"sent": port}
        # The reader closes first, so that the port is free at once for the next case.
        reader.remote_socket.close(0)
        queue.remote_socket.recv()
        queue.remote_socket.close(0)
    finally:
        for logger in loggers:
            logger.removeHandler(heard)
        for other in held:
            other.close()
    outcome["warnings"] = list(dict.fromkeys(heard.messages))
    return outcome


def cases(band):
    everything = range(band, band + BAND)
    queue_ports = [*range(band + 64, band + BAND), *range(band, band + 32)]
    return {
        "free": lambda: case(band),
        "reserved": lambda: case(band, held=occupy(queue_ports[:-1], listen=False)),
        "exhausted": lambda: case(band, held=occupy(everything)),
        "master": lambda: case(band, master=band + 64),
        "unset": lambda: case(None),
        "kubernetes": lambda: case("tcp://10.1.1.1:80"),
        "foreign address": lambda: case(band, address="192.0.2.77"),
        "ipv6": lambda: case(band, address="::1"),
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    known = cases(given["band"])
    outcomes = {name: known[name]() for name in given["only"] or known}
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcomes))
