"""A vLLM worker extension: what the CPU's MoE kernel itself routes to, whatever is captured."""

from __future__ import annotations

import importlib
import importlib.util

import torch
import vllm

# Where the kernel selects experts: before 0.28.0, and since. Earlier releases have both modules.
_KERNELS = (
    "vllm.model_executor.layers.fused_moe.cpu_fused_moe",
    "vllm.model_executor.layers.fused_moe.experts.cpu_moe",
)

# vLLM 0.27 refuses MoE layers in float32 on a CPU with AMX, which it takes for badly aligned ones.
# Float32 is what makes routing comparable, so such a CPU passes for one without.
if vllm.__version__.startswith("0.27."):
    torch.cpu._is_amx_tile_supported = lambda: False


class KernelProbe:
    """Mixed into the worker; each method is called by name through ``collective_rpc``."""

    def watch_kernel(self) -> None:
        name = next(n for n in _KERNELS if importlib.util.find_spec(n))
        kernel = importlib.import_module(name)
        select = kernel.select_experts
        self.probed: list[list[list[int]]] = []

        def watched(*arguments, **keywords):
            weights, ids = select(*arguments, **keywords)
            self.probed.append(ids.tolist())
            return weights, ids

        kernel.select_experts = watched

    def take_kernel_ids(self) -> list[list[list[int]]]:
        """Return the ids of every call since the last time, ``[call][token][k]``."""
        taken, self.probed = self.probed, []
        return taken
