"""Message queues between nodes listen inside the port band (patch ``mq-port-band``).

The queue's own socket is bound to a port of the band, so no port is looked up first and bound
later, which two processes can do at the same time (vllm-project/vllm#51275).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from vllm_nemo.patches.shared.port_band import listen, queue_ports

if TYPE_CHECKING:
    import zmq


def bind_queue(queue: zmq.Socket[bytes], host: str) -> int:
    """Make a zmq socket listen on a port of the band.

    zmq takes over a socket that is bound already (ZMQ_USE_FD). It would bind its own socket with
    SO_REUSEADDR, and that succeeds on a port that another process has bound but does not listen on.

    Args:
        queue: The socket of a message queue.
        host: The numeric address that readers will connect to; IPv6 with or without brackets.

    Returns:
        The port.

    Raises:
        OSError: as ``listen`` does.
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
