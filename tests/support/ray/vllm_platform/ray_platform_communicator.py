"""Imported by workers, when vLLM's platform is settled."""

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class NodesCommunicator(CpuCommunicator):
    """Between workers on several nodes: never through shared memory.

    vLLM tells whether workers share a machine by a name that is made of the TCPStore's port, which
    all workers of an engine share.
    """

    def _all_group_ranks_share_shm_group_name(self):
        return False
