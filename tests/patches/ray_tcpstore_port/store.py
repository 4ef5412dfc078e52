"""The TCPStore of RayExecutorV2 and the queue of its driver, for one engine or many on a node.

Arguments: ``drop``: give up the right to bind ports below 1024 first; ``engines``: how many start
at the same moment. What vLLM does is done in its order, by its own code: up to 0.28.0 a port is
chosen, the queue made, and the store bound in the end; later rank 0's worker makes the store. Every
step of all engines is over before the next begins. Result: whether ports below 1024 may be bound,
and for each engine its ports, the error, whether a stranger could have the store's port before
``init_process_group`` had it, and the sum that the two ranks of the engine agreed on.
"""

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path

from tests.support import vllm_internals

DROP = ["setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service"]
TIMEOUT = 60
# Makes Ray give a node the loopback address, as on systems where Ray has no clusters.
ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "GLOO_SOCKET_IFNAME": "lo"}

fork = multiprocessing.get_context("fork")


def may_bind(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return False
        except OSError as error:
            # Only a process with the right to the port is told that it is in use.
            return error.errno == errno.EADDRINUSE
    return True


def stranger_gets(port):
    """Tell whether a process that knows nothing of vLLM could take a port on all addresses."""
    with socket.socket() as stranger:
        try:
            stranger.bind(("", port))
        except OSError:
            return False
    return True


def all_reduce(url, rank):
    import torch
    from torch import distributed

    distributed.init_process_group("gloo", init_method=url, rank=rank, world_size=2)
    value = torch.ones(1) * (rank + 1)
    distributed.all_reduce(value)
    return value.item()


def engine(step, turn, reports, second):
    """Do what the driver and rank 0 of one engine do, as far as ports go."""
    config = vllm_internals.ParallelConfig()
    outcome = {"store": None, "queue": None, "error": None}
    step.wait(TIMEOUT)
    outcome["store"] = vllm_internals.pick_store_port(config)
    url = f"tcp://127.0.0.1:{outcome['store']}"
    step.wait(TIMEOUT)
    # One at a time: the race of the queues belongs to another patch.
    with turn:
        queue = vllm_internals.MessageQueue(2, 0, connect_ip="127.0.0.1")
    outcome["queue"] = int(queue.export_handle().remote_subscribe_addr.rpartition(":")[2])
    step.wait(TIMEOUT)
    if outcome["store"] is None:
        # The name keeps the worker, and with it the socket, until this process ends.
        url, _worker = vllm_internals.hold_store(config, dict(os.environ))
        outcome["store"] = int(url.rpartition(":")[2])
    outcome["stranger"] = stranger_gets(outcome["store"])
    step.wait(TIMEOUT)
    second.put(url)
    try:
        outcome["sum"] = all_reduce(url, 0)
    except Exception as error:  # noqa: BLE001 - the test judges it
        outcome["error"] = f"{type(error).__name__}: {error}"
    reports.put(outcome)
    step.wait(TIMEOUT)


def other_rank(urls):
    all_reduce(urls.get(), 1)


def child(target, *arguments):
    """Run in a fork, and leave it without the parent's exit handlers."""
    signal.alarm(2 * TIMEOUT)
    with contextlib.suppress(Exception):
        target(*arguments)
    os._exit(0)


def start(count):
    step, turn, reports = fork.Barrier(count), fork.Lock(), fork.SimpleQueue()
    children = []
    for _ in range(count):
        second = fork.SimpleQueue()
        children += [
            fork.Process(target=child, args=(engine, step, turn, reports, second)),
            fork.Process(target=child, args=(other_rank, second)),
        ]
    for process in children:
        process.start()
    outcomes = [reports.get() for _ in range(count)]
    for process in children:
        # The second rank of an engine without a store would wait for minutes.
        process.join(1)
        process.kill()
    return outcomes


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.pop("drop") and may_bind(100):
        again = [sys.executable, __file__, json.dumps({**given, "drop": False})]
        os.execvpe(DROP[0], [*DROP, *again], {**os.environ, **ENVIRONMENT})  # noqa: S606
    os.environ.update(ENVIRONMENT)
    # Ends the scenario if a child never reports.
    signal.alarm(5 * TIMEOUT)
    vllm_internals.find("RayExecutorV2")  # imported once, before forking

    result = {
        "below 1024": may_bind(100),
        "one": start(1)[0],
        "many": start(given["engines"]),
    }
    os.environ.pop("VLLM_PORT", None)
    result["many, no VLLM_PORT"] = start(given["engines"])
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))
