"""Imported by vLLM when it takes the platform up."""

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    """The CPU, one worker for each GPU that a node of Ray was told to have."""

    ray_device_key = "GPU"
    # There are no devices to hide; this shows what an executor puts into a runtime_env.
    ray_noset_device_env_vars = ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",)

    @classmethod
    def get_device_communicator_cls(cls):
        return "ray_platform_communicator.NodesCommunicator"
