"""Many processes make message queues for readers on other nodes, all at the same moment.

Argument: ``rounds``, each with ``processes``, ``queues`` (per process), ``trials``, ``address`` and
``gated``: hold back every process that has found a port until all have, as a scheduler may.
Result: for each round a list of trials, with the ports listened on, the errors, and how many queues
brought their message across.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from tests.support import vllm_internals
from tests.support.vllm_internals import MessageQueue

TIMEOUT = 60
fork = multiprocessing.get_context("fork")


def write(number, arguments, start, found, reports, go):
    """Make this process's queues, report them, and send a message of its own through each."""
    if arguments["gated"]:
        vllm_internals.after_probe(lambda: found.wait(TIMEOUT))
    queues, errors = [], []
    start.wait(TIMEOUT)
    for _ in range(arguments["queues"]):
        try:
            queues.append(MessageQueue(1, 0, connect_ip=arguments["address"]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent judges it
            errors.append(f"{type(error).__name__}: {error}")
    reports.put((number, [queue.export_handle() for queue in queues], errors))
    go.wait(TIMEOUT)
    for index, queue in enumerate(queues):
        queue.wait_until_ready()
        queue.enqueue(f"message {index} of {number}")
    # A writer that ends takes unread messages with it, so all wait until everything is read.
    start.wait(TIMEOUT)


def read(start, expected, received, go):
    """Read every message, each through the handle of the queue that it was sent by."""
    start.wait(TIMEOUT)
    handles = expected.get()
    go.set()
    right = 0
    for number, index, handle in handles:
        queue = MessageQueue.create_from_handle(handle, 0)
        queue.wait_until_ready()
        right += queue.dequeue(timeout=TIMEOUT) == f"message {index} of {number}"
        # The reader closes first, so that the port is free at once for the next trial.
        queue.remote_socket.close(0)
        queue.remote_socket.context.term()
    received.put(right)
    start.wait(TIMEOUT)


def child(target, *arguments):
    """Run in a fork, and leave it without the parent's exit handlers."""
    signal.alarm(2 * TIMEOUT)
    status = 1
    with contextlib.suppress(Exception):
        target(*arguments)
        status = 0
    sys.stdout.flush()
    os._exit(status)


def trial(arguments):
    count = arguments["processes"]
    start, found = fork.Barrier(count + 1), fork.Barrier(count)
    reports, expected, received, go = (
        fork.SimpleQueue(),
        fork.SimpleQueue(),
        fork.SimpleQueue(),
        fork.Event(),
    )
    children = [
        fork.Process(
            target=child, args=(write, number, arguments, start, found, reports, go), daemon=True
        )
        for number in range(count)
    ]
    children.append(
        fork.Process(target=child, args=(read, start, expected, received, go), daemon=True)
    )
    for process in children:
        process.start()
    made, errors = [], []
    for _ in range(count):
        number, handles, failures = reports.get()
        made += [(number, index, handle) for index, handle in enumerate(handles)]
        errors += failures
    expected.put(made)
    right = received.get()
    for process in children:
        process.join()
    return {
        "ports": [int(handle.remote_subscribe_addr.rpartition(":")[2]) for _, _, handle in made],
        "errors": errors,
        "received": right,
    }


if __name__ == "__main__":
    # Ends the scenario if a child never reports.
    signal.alarm(10 * TIMEOUT)
    given = json.loads(sys.argv[1])["rounds"]
    outcome = [[trial(arguments) for _ in range(arguments["trials"])] for arguments in given]
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcome))
