"""A vLLM platform for tests: Ray's logical GPUs stand for slots of a worker on the CPU.

vLLM's own CPU platform names no resource of Ray, so its Ray executors refuse it. A directory for
PYTHONPATH, whose entry point vLLM finds.
"""


def register():
    return "ray_platform_cpu.RayCpuPlatform"
