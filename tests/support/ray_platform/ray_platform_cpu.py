"""Imported by vLLM when it takes the platform up."""

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.platforms.cpu import CpuPlatform


class NodesCommunicator(CpuCommunicator):
    """Between workers on several nodes: never through shared memory.

    vLLM tells whether workers share a machine by a name that is made of the TCPStore's port, which
    all workers of an engine share.
    """

    def _all_group_ranks_share_shm_group_name(self):
        return False


class RayCpuPlatform(CpuPlatform):
    """The CPU, one worker for each GPU that a node of Ray was told to have."""

    ray_device_key = "GPU"
    # Without devices to hide, something that shows what an executor puts into a runtime_env.
    ray_noset_device_env_vars = ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",)

    @classmethod
    def get_device_communicator_cls(cls):
        return f"{NodesCommunicator.__module__}.{NodesCommunicator.__qualname__}"
