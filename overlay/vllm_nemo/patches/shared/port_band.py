"""The port band: listening sockets of a multi-node engine, on ports reserved for the engine.

``VLLM_PORT`` names the first port of a band of 100. vLLM looks for a free port of it with a probe,
closes the probe, and binds later, on another node or never. So two processes find the same port, or
an engine takes its own port twice. Here a port is chosen by binding the real socket, which stays
open until zmq or torch has taken it over. The kernel decides who gets the port.

    VLLM_PORT + 64 .. 99   message queues
    VLLM_PORT +  0 .. 31   message queues, if those are in use
    VLLM_PORT + 32 .. 63   the TCPStore where the workers of an engine meet

Queues take the low end last, because everything else in vLLM that looks for a port starts there and
binds later. The ten ports from ``VLLM_DP_MASTER_PORT`` on are never used: vLLM sets them aside for
the data-parallel master.

Without a valid ``VLLM_PORT`` the kernel chooses. The environment is read when a socket is made,
because an executor sets it in its workers after they have started.
"""

from __future__ import annotations

import errno
import functools
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

BAND = 100
STORE_WINDOW = range(32, 64)
# What vLLM's own get_open_port leaves free above VLLM_DP_MASTER_PORT.
DP_MASTER_PORTS = 10
LAST_PORT = 65535

# Below "vllm", so that vLLM's handlers and levels apply.
_logger = logging.getLogger("vllm.nemo.port_band")


def first_port(environ: Mapping[str, str]) -> int | None:
    """Return the first port of the band.

    Args:
        environ: Environment variables.

    Returns:
        The value of ``VLLM_PORT``. None if the kernel is to choose: the variable is unset or 0, or
        its value is no port, which is logged once. The last is no error, because Kubernetes sets
        it to a URI beside a Service called ``vllm`` (vllm-project/vllm#34199).
    """
    text = environ.get("VLLM_PORT", "")
    port = _number(text) if text else 0
    if port is None or not 0 <= port <= LAST_PORT:
        _warn_no_port(text)
        return None
    return port or None


def queue_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the ports for a message queue, in the order to try them.

    Args:
        environ: Environment variables.

    Returns:
        The ports; none without a band.
    """
    above = range(STORE_WINDOW.stop, BAND)
    below = range(STORE_WINDOW.start)
    return _ports(environ, [*above, *below])


def store_ports(environ: Mapping[str, str]) -> list[int]:
    """Return the ports for a TCPStore, in the order to try them.

    Args:
        environ: Environment variables.

    Returns:
        The ports; none without a band.
    """
    return _ports(environ, STORE_WINDOW)


def listen(host: str, ports: Sequence[int], purpose: str) -> socket.socket:
    """Return a socket that listens on the first free one of some ports.

    If all of them are in use, it logs a warning and lets the kernel choose a port. The socket does
    not have SO_REUSEADDR, because a bind with it succeeds on a port that another process has bound
    and does not listen on yet.

    Args:
        host: A numeric IPv4 or IPv6 address of this machine; "" for all addresses, of both
            protocols if the machine has both.
        ports: The ports to try; if empty, the kernel chooses.
        purpose: What the socket is for, for messages.

    Returns:
        A non-blocking socket.

    Raises:
        OSError: for any error but a port in use: an address of another machine, no right to ports
            below 1024, and so on.
    """
    family, address = _resolve(host, purpose)
    for port in (*ports, 0):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((address[0], port, *address[2:]))
            listener.listen(1024)
            listener.settimeout(0)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port == 0:
                where = f"{host or 'any address'}, port {port or 'any'}"
                raise OSError(
                    error.errno, f"cannot listen on {where}, for {purpose}: {error.strerror}"
                ) from error
            continue
        if ports and port == 0:
            _logger.warning(
                "All %d ports from %d to %d for %s are in use on %s. It listens on "
                "%d, outside the band of VLLM_PORT.",
                len(ports),
                min(ports),
                max(ports),
                purpose,
                host or "this machine",
                listener.getsockname()[1],
            )
        return listener
    raise AssertionError("not reached: port 0 returns or raises")


def _ports(environ: Mapping[str, str], offsets: Sequence[int]) -> list[int]:
    first = first_port(environ)
    if first is None:
        return []
    master = _number(environ.get("VLLM_DP_MASTER_PORT", "")) or 0
    taken = range(master, master + DP_MASTER_PORTS) if master > 0 else range(0)
    candidates = (first + offset for offset in offsets)
    found = [port for port in candidates if port <= LAST_PORT and port not in taken]
    if not found:
        _logger.warning(
            "VLLM_PORT=%d is too high: every port of the band that is wanted is beyond 65535.",
            first,
        )
    return found


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


@functools.cache
def _warn_no_port(text: str) -> None:
    _logger.warning(
        "VLLM_PORT=%r is not a port, so the kernel chooses the ports of this engine. Kubernetes "
        "sets the variable to a URI beside a Service called vllm: rename the Service, or set "
        "enableServiceLinks: false.",
        text,
    )


def _resolve(host: str, purpose: str) -> tuple[int, tuple[Any, ...]]:
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", 0, 0, 0)
        return socket.AF_INET, ("0.0.0.0", 0)  # noqa: S104 - as torch's TCPStore does
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
    except socket.gaierror as error:
        raise OSError(
            errno.EADDRNOTAVAIL,
            f"cannot listen on {host!r}, for {purpose}: not a numeric address ({error.strerror})",
        ) from error
    return family, address
