"""What Ray needs in tests: a platform of vLLM's that it may use, and no trace of other clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.ports import free_band

if TYPE_CHECKING:
    from tests.support.environment import Environment

HERE = Path(__file__).parent
PLATFORM = HERE / "vllm_platform"
EXECUTORS = HERE / "executors.py"

# For every process that starts, joins or uses a cluster. It also needs a HOME of its own.
ENVIRONMENT = {
    "PYTHONPATH": str(PLATFORM),
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "240",
    "VLLM_PLUGINS": "ray_platform,vllm_nemo",
}

# The cases of the scenario executors.py, by name.
CASES: dict[str, dict[str, Any]] = {
    "v1 unset": {"executor": 1},
    "v1 value": {"executor": 1, "python": "WRAPPER", "switches": True},
    "v1 driver": {"executor": 1, "python": "driver"},
    "v2 unset": {"executor": 2},
    "v2 value": {"executor": 2, "python": "WRAPPER", "switches": True},
    "v2 driver": {"executor": 2, "python": "driver"},
    "v2 command": {"executor": 2, "python": "env MARK=here WRAPPER"},
    "v2 caller's": {
        "executor": 2,
        "python": "WRAPPER",
        "switches": True,
        "caller": {
            "py_executable": "OTHER",
            "env_vars": {"NRL_VLLM_FP32_LM_HEAD": "0", "MINE": "kept"},
        },
    },
}


def workers_band(vllm_env: Environment) -> int:
    """Return the VLLM_PORT that ``workers`` gives the executors of a release."""
    return free_band("workers", vllm_env.release)


def workers(vllm_env: Environment, *, overlay: bool) -> dict[str, Any]:
    """Tell how both executors of a release start a worker, on a local node of Ray."""
    found = vllm_env.scenario(
        EXECUTORS,
        overlay=overlay,
        env={
            **ENVIRONMENT,
            # Makes Ray use the loopback address, as on systems where it has no clusters.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_PORT": str(workers_band(vllm_env)),
            "VLLM_LOGGING_LEVEL": "ERROR",
        },
        cases=list(CASES.values()),
    ).ok()
    return {**dict(zip(CASES, found["told"], strict=True)), "copied": found["copied"]}
