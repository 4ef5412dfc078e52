"""Scenario: what an environment has to run device tests with.

Result: ``usable`` (torch and vLLM both see a CUDA device), ``found`` (what was seen, for a person),
and where usable ``name``, ``capability`` (two numbers) and ``packages``: what vLLM's kernels need
beside vLLM, each by name with whether it is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import torch

from tests.support import vllm_internals


def there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


def main() -> None:
    platform = vllm_internals.current_platform
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    result = {
        "usable": count > 0 and platform.is_cuda(),
        "found": f"torch {torch.__version__} sees {count} CUDA devices, vLLM's platform is "
        f"{type(platform).__name__}",
    }
    if result["usable"]:
        result["name"] = torch.cuda.get_device_name()
        result["capability"] = list(torch.cuda.get_device_capability())
        result["packages"] = {
            "triton_kernels": there("triton_kernels") or there("vllm.third_party.triton_kernels"),
            "flashinfer": there("flashinfer"),
            # FlashInfer compiles its kernels unless their package is installed.
            "flashinfer-cubin or nvcc": there("flashinfer_cubin")
            or shutil.which("nvcc") is not None,
        }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
