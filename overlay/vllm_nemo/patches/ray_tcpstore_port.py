"""The TCPStore of a Ray engine, held since its port was chosen (patch ``ray-tcpstore-port``)."""

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
    """Return a torch ``TCPStore`` of this process that serves a port of the band at ``host``.

    To be called where rank 0 will be, and kept until ``init_process_group``, which in the same
    process finds the server by its port and shares it (``multi_tenant``): between the choice of
    the port and its use nobody can take it. vllm-project/vllm#50969 does the same from 0.29.0 on,
    with a port that the kernel chooses.

    ``driver_environ`` fills in for variables that this process lacks: RayExecutorV2 sends the
    driver's environment after it has asked for the store, and never over a node's own.
    Raises OSError as ``listen`` does.
    """
    from torch.distributed import TCPStore

    environ = {**(driver_environ or {}), **os.environ}
    # All addresses, as torch would: the workers of this node may come by another than host.
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
    """Hold a TCPStore as long as ``worker`` lives, and return its port; run in rank 0's process."""
    worker.nemo_dist_store = hold_store(host, world_size)
    port: int = worker.nemo_dist_store.port
    return port
