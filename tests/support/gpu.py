"""Settings of engines that run on a GPU, small enough to share it with another one."""

ENGINE = {
    "gpu_memory_utilization": 0.2,
    # Given, it is not measured: a measurement fails when another process frees memory meanwhile.
    "kv_cache_memory_bytes": 1 << 28,
}
