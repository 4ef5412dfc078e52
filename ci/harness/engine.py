"""The engines that tests and benchmarks start: their environment variables and their arguments.

A script that starts an engine runs in an interpreter that has vLLM and cannot import this module.
It gets what ``arguments`` returns as a part of its own arguments.
"""

from __future__ import annotations

import os
from typing import Any

# Prefixes of inherited variables that could change what a test shows or a benchmark measures.
# CUDA_ is not among them: CUDA_VISIBLE_DEVICES says which GPUs of a machine may be used.
SCRUBBED = (
    "HATCH_",
    "LC_",
    "NRL_",
    "PYTHON",
    "RAY_",
    "SOURCE_DATE_EPOCH",
    "TORCH",
    "TZ",
    "VIRTUAL_ENV",
    "VLLM_",
)
# Prefixes of the installers' variables. They say where packages come from, so they are scrubbed
# only where a test brings its own index or needs none.
INSTALLERS = ("PIP_", "UV_")

# Variables of an engine on a CPU. They are harmless on a GPU.
CPU = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "2",
    "PYTHONHASHSEED": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
# vLLM compiles a few functions even with enforce_eager: minutes of a C++ compiler in a new
# environment. A test of compilation sets the variable to 0.
EAGER = {"TORCHDYNAMO_DISABLE": "1"}

# Arguments of vLLM's LLM for a tiny model that is asked with token ids.
_ARGUMENTS: dict[str, Any] = {
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "max_model_len": 64,
    "max_num_seqs": 4,
    "skip_tokenizer_init": True,
}
# In addition on a GPU, so that two engines share one.
_ARGUMENTS_ON_GPU: dict[str, Any] = {
    "gpu_memory_utilization": 0.2,
    # vLLM measures it unless it is given, and fails if another process frees memory meanwhile.
    "kv_cache_memory_bytes": 1 << 28,
}


def variables(*scrubbed: str, **extra: str) -> dict[str, str]:
    """Return this process's environment variables without the scrubbed ones.

    Args:
        scrubbed: More prefixes to scrub, such as ``*INSTALLERS``.
        extra: Variables to set.

    Returns:
        The environment of a child process.
    """
    prefixes = (*SCRUBBED, *scrubbed)
    inherited = {name: v for name, v in os.environ.items() if not name.startswith(prefixes)}
    return {**inherited, **extra}


def arguments(device: str = "cpu", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the arguments of ``LLM`` that tests and benchmarks share, without the model.

    Args:
        device: "cpu" or "cuda".
        changes: Arguments to add or to replace.

    Returns:
        Keyword arguments, which JSON can hold if the changes are such.
    """
    on_gpu = _ARGUMENTS_ON_GPU if device == "cuda" else {}
    return {**_ARGUMENTS, **on_gpu, **changes}
