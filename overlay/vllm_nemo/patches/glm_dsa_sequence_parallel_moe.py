"""Which tensors hold a rank's share of the tokens (patch ``glm-dsa-sequence-parallel-moe``).

With expert, tensor and data parallelism all on, vLLM makes MoE layers sequence-parallel: such a
layer ends with each tensor-parallel rank holding ``ceil(num_tokens / tp)`` of the tokens, its
*shard*. The last ranks' rows may be padding. Who needs every token gathers the shards first.

vLLM 0.25 to 0.33 recognise a shard by its number of rows, which differs from the number of tokens
unless there is one token: a shard of it has one row too
(https://github.com/vllm-project/vllm/issues/50154). Here the layers decide. A tensor is a shard if
and only if the layer that made it is sequence-parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class MoELayout(Protocol):
    """The part of a DeepSeek-style configuration that says which layers are MoE layers.

    ``moe_layer_freq`` is read where the configuration has it; without it, it is 1.
    """

    n_routed_experts: int | None
    first_k_dense_replace: int


def follows_moe_layer(config: MoELayout, layer_idx: int) -> bool:
    """Tell whether the layer before ``layer_idx`` is a MoE layer, by the configuration.

    A decoder layer asks when it is constructed. If it is sequence-parallel itself, the layer before
    it is too if that is a MoE layer: all other conditions hold for the whole model. So its input
    is a shard if this is true and the layer is not the first of its stack. The layer sees the
    latter from ``residual is None``; its index does not tell, because drafts number their layers
    after the target's.

    Args:
        config: The HF configuration of the model.
        layer_idx: The layer's index, from 0.

    Returns:
        Whether there is a layer before it, and that is a MoE layer.
    """
    previous = layer_idx - 1
    return (
        previous >= 0
        and config.n_routed_experts is not None
        and previous >= config.first_k_dense_replace
        and previous % getattr(config, "moe_layer_freq", 1) == 0
    )


def shards_before(
    layers: Sequence[torch.nn.Module], index: int, gathered: Container[int] = ()
) -> bool:
    """Tell whether the hidden states in front of ``layers[index]`` are shards.

    Args:
        layers: The layers of one stack, in order. A layer without vLLM's flag is not
            sequence-parallel; so a stage that is missing under pipeline parallelism is none.
        index: From 0 (the input of the stack, never a shard) to ``len(layers)`` (its output).
        gathered: Indices in front of which the model has gathered the shards already.

    Returns:
        Whether the layer before is sequence-parallel and nothing gathered its shards.
    """
    if index == 0 or index in gathered:
        return False
    layer = layers[index - 1]
    # The flag's name in DeepSeek's model files, and in Qwen3-Next's.
    return bool(
        getattr(layer, "use_sequence_parallel_moe", False)
        or getattr(layer, "use_attn_reduce_scatter_for_moe", False)
    )


def gather_tokens(
    all_gather: Callable[[torch.Tensor, int], torch.Tensor],
    positions: torch.Tensor,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give every rank all tokens again.

    Args:
        all_gather: ``all_gather(tensor, 0)`` concatenates the ranks' shards along the first
            dimension: vLLM's ``tensor_model_parallel_all_gather``. An argument, because an import
            in here would run inside a traced function.
        positions: (num_tokens,), any integer dtype. Only its length is used.
        hidden_states: (ceil(num_tokens / tp), hidden), any dtype.
        residual: As ``hidden_states``.

    Returns:
        Both tensors as (num_tokens, hidden), in their dtypes, without the padding rows.
    """
    num_tokens = positions.shape[0]
    return all_gather(hidden_states, 0)[:num_tokens], all_gather(residual, 0)[:num_tokens]
