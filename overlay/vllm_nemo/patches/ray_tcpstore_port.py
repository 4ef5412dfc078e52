"""The TCPStore of a Ray engine, held from the choice of its port (patch ``ray-tcpstore-port``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vllm_nemo.patches.shared.port_band import listen, store_ports

if TYPE_CHECKING:
    from torch.distributed import TCPStore
    from vllm.v1.worker.worker_base import WorkerWrapperBase


def hold_store(
    host: str, world_size: int, driver_environ: Mapping[str, str] | None = None
) -> TCPStore:
    """Start a torch ``TCPStore`` in this process, on a port of the band.

    Call it in rank 0's process, and keep the store until ``init_process_group``. That finds the
    server by its port in the same process and shares it (``multi_tenant``), so nobody can take the
    port between its choice and its use. Source: vllm-project/vllm#50969, which does the same from
    0.29.0 on, with a port that the kernel chooses.

    Args:
        host: The address by which the other ranks reach this process.
        world_size: How many ranks there are.
        driver_environ: The driver's environment variables, for those that this process does not
            have: RayExecutorV2 sends them after it has asked for the store, and never replaces a
            node's own.

    Returns:
        The store; ``port`` is its port.

    Raises:
        OSError: as ``listen`` does.
    """
    from torch.distributed import TCPStore

    environ = {**(driver_environ or {}), **os.environ}
    # All addresses, as torch does: the workers of this node may use another address than host.
    listener = listen("", store_ports(environ), "the TCPStore")
    with contextlib.closing(listener):
        store = TCPStore(
            host_name=host,
            port=listener.getsockname()[1],
            world_size=world_size,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=listener.fileno(),
        )
        listener.detach()
    return store


def hold_store_for(worker: WorkerWrapperBase, host: str, world_size: int) -> int:
    """Start a TCPStore that lives as long as a worker.

    Args:
        worker: The worker of rank 0, whose process runs this.
        host: The address by which the other ranks reach that process.
        world_size: How many ranks there are.

    Returns:
        The port of the store.

    Raises:
        OSError: as ``listen`` does.
    """
    worker.nemo_dist_store = hold_store(host, world_size)
    port: int = worker.nemo_dist_store.port
    return port
