"""Which tokens a DeepSeek-style decoder layer holds when its MoE is sequence-parallel.

With expert parallelism, tensor parallelism and data parallelism all on, vLLM lets a MoE layer end
with each tensor-parallel rank holding ``ceil(num_tokens / tp)`` of the tokens (the last ranks'
rows may be padding), and gathers only where the next consumer needs every token. vLLM 0.25 to
0.29 tell the two layouts apart by comparing the number of rows with the number of tokens, which
cannot work for one token: a shard of it has one row too. Layouts are a property of the layer
stack, so they are decided from the layers here
(https://github.com/vllm-project/vllm/issues/50154).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class MoELayout(Protocol):
    """The part of a DeepSeek-style configuration that says which layers are MoE layers.

    ``moe_layer_freq`` is read too where the configuration has it (1 otherwise).
    """

    n_routed_experts: int | None
    first_k_dense_replace: int


def follows_moe_layer(config: MoELayout, layer_idx: int) -> bool:
    """Tell whether the layer before ``layer_idx`` in the same stack is a MoE layer.

    A MoE layer hands over shards exactly when it is itself sequence-parallel, and the conditions
    for that beside being a MoE layer are the same for every layer of a model. So a
    sequence-parallel layer takes shards if and only if this is true and it is not the first layer
    of its stack, which the caller sees from ``residual is None``: drafts number their layers after
    the target's, so the index alone does not tell.
    """
    previous = layer_idx - 1
    return (
        previous >= 0
        and config.n_routed_experts is not None
        and previous >= config.first_k_dense_replace
        and previous % getattr(config, "moe_layer_freq", 1) == 0
    )


def gather_tokens(
    all_gather: Callable[[torch.Tensor, int], torch.Tensor],
    positions: torch.Tensor,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give every rank all tokens again.

    ``all_gather(tensor, 0)`` concatenates the ranks' shards along the first dimension (vLLM's
    ``tensor_model_parallel_all_gather``; handed in so that this module needs neither vLLM nor an
    import inside a traced function). ``positions`` has shape [num_tokens]; ``hidden_states`` and
    ``residual`` have shape [ceil(num_tokens / tp), hidden] and keep their dtype. Returns both as
    [num_tokens, hidden], without the padding rows.
    """
    num_tokens = positions.shape[0]
    return all_gather(hidden_states, 0)[:num_tokens], all_gather(residual, 0)[:num_tokens]
