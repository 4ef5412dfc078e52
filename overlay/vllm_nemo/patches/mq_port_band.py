"""Message queues between nodes listen inside the port band (patch ``mq-port-band``)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from vllm_nemo.patches.shared.port_band import listen, queue_ports

if TYPE_CHECKING:
    import zmq


def bind_queue(queue: zmq.Socket[bytes], host: str) -> int:
    """Make a zmq socket listen on a port of the band at ``host``, and return the port.

    ``host`` is the address that the readers will connect to, an IPv6 one with or without brackets.
    Raises OSError as ``listen`` does.

    zmq takes the bound socket over (ZMQ_USE_FD) rather than binding its own to a port found free:
    its sockets have SO_REUSEADDR, with which a bind also succeeds on a port that another process
    has reserved and does not listen on yet.
    """
    import zmq

    host = host.strip("[]")
    listener = listen(host, queue_ports(os.environ), "a message queue")
    port: int = listener.getsockname()[1]
    with contextlib.closing(listener):
        queue.setsockopt(zmq.USE_FD, listener.fileno())
        queue.bind(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        listener.detach()
        queue.setsockopt(zmq.USE_FD, -1)
    return port
