"""Processes that make a message queue each, at the same moment, whenever it is asked.

Answers with the milliseconds from the first that begins until the last queue is there.
"""

from __future__ import annotations

import multiprocessing
import os
import time

import answers
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

fork = multiprocessing.get_context("fork")
PATIENCE = 60


def make(start, done, leave) -> None:  # noqa: ANN001 - of multiprocessing
    """Make one queue, in a process of its own."""
    start.wait(PATIENCE)
    begun = time.monotonic()
    queue = MessageQueue(1, 0, connect_ip="127.0.0.1")
    done.put((begun, time.monotonic(), queue.export_handle().remote_subscribe_addr))
    leave.wait(PATIENCE)
    # Without the parent's exit handlers.
    os._exit(0)


def measure(processes: int) -> dict[str, float]:
    """Let so many processes make their queues."""
    start, leave = fork.Barrier(processes + 1), fork.Barrier(processes + 1)
    done = fork.SimpleQueue()
    children = [fork.Process(target=make, args=(start, done, leave)) for _ in range(processes)]
    for child in children:
        child.start()
    start.wait(PATIENCE)
    reports = [done.get() for _ in children]
    leave.wait(PATIENCE)
    for child in children:
        child.join()
    if len({address for *_, address in reports}) != processes:
        raise RuntimeError("two processes listen on one port")
    begun, made, _ = zip(*reports, strict=True)
    return {"ms": 1e3 * (max(made) - min(begun))}


answers.serve(measure)
