"""A vLLM worker extension: which MoE kernels the worker holds; and a router's operator on a CPU."""

from __future__ import annotations

from tests.support import vllm_internals

vllm_internals.add_topk_softmax()


class QuantizedProbe:
    """Mixed into the worker; called by name through ``collective_rpc``."""

    def moe_kernels(self) -> list[str]:
        """Return the class names of the kernels of all MoE layers, each once."""
        layers = vllm_internals.moe_layers(self.model_runner.model)
        return sorted({type(vllm_internals.moe_kernel(layer)).__name__ for layer in layers})
