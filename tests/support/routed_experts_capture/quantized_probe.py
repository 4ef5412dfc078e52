"""A vLLM worker extension: which MoE kernels the worker holds; and a router's operator on a CPU."""

from __future__ import annotations

import torch

# vLLM has this operator for GPUs only, so that on a CPU the default router cannot route, and the
# patch refuses to capture. With it the rest of the way can be run there.
if not hasattr(torch.ops._moe_C, "topk_softmax") and not torch.cuda.is_available():
    _library = torch.library.Library("_moe_C", "FRAGMENT")
    # 0.25 and 0.26 pass no is_padding.
    _library.define(
        "topk_softmax(Tensor(a!) weights, Tensor(b!) ids, Tensor(c!) rows, Tensor logits, "
        "bool renormalize, Tensor? bias, Tensor? is_padding=None) -> ()"
    )

    def _topk_softmax(weights, ids, rows, logits, renormalize, bias, is_padding=None):
        best, chosen = logits.float().softmax(-1).topk(ids.shape[1])
        weights.copy_(best / best.sum(-1, keepdim=True) if renormalize else best)
        ids.copy_(chosen)

    _library.impl("topk_softmax", _topk_softmax, "CPU")


class QuantizedProbe:
    """Mixed into the worker; called by name through ``collective_rpc``."""

    def moe_kernels(self) -> list[str]:
        """Return the class names of the kernels of all MoE layers, each once."""
        from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

        layers = [m for m in self.model_runner.model.modules() if isinstance(m, MoERunner)]
        kernels = [layer._quant_method.moe_kernel for layer in layers]
        return sorted({type(k and k.impl.fused_experts).__name__ for k in kernels})
