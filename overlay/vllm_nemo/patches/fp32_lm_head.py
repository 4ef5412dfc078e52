"""``NRL_VLLM_FP32_LM_HEAD=1``: an fp32 projection in the LM head (patch ``fp32-lm-head``).

The trainer computes its logits in fp32. With a bf16 head vLLM rounds them to eight bits, and the
log-probabilities of rollouts differ from the trainer's by about 1e-2 nats. vLLM has a setting for
the dtype of the projection: ``head_dtype`` in the model's HF configuration
(vllm-project/vllm#48390, released in 0.26.0). The patch turns it on for every generation model and
brings it to 0.25. Whatever would leave the head in bf16 refuses to start, because a bf16 head on
one side trains worse than one on both (NVIDIA-NeMo/RL#3936).

vLLM calls this module in these places:

- ``ModelConfig`` calls ``configure`` once it knows its runner and dtype. The setting is written
  into the HF configuration, so that it is part of ``compute_hash`` and travels to every worker in
  the pickled ``VllmConfig``; no worker reads the environment variable.
- ``initialize_model`` calls ``check`` on each model that it has built.
- ``LogitsProcessor`` and its LoRA wrapper call ``apply_head`` (0.25) or ``is_unquantized``
  (0.26 to 0.28).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import vllm_nemo
from vllm_nemo._overlay.switches import FP32_LM_HEAD as SWITCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch import nn
    from transformers import PretrainedConfig
    from vllm.config import ModelConfig, VllmConfig
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

_MARK = "_nrl_fp32_lm_head"
_FP32_NAMES = ("float32", "float", "torch.float32")


def is_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the variable asks for an fp32 head.

    Args:
        environ: Environment variables.

    Returns:
        True for "1"; False if the variable is unset, empty or "0".

    Raises:
        ValueError: for any other value. "true" is refused, not interpreted: a run with a bf16 head
            by mistake looks healthy and trains worse.
    """
    value = environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"{SWITCH}={value!r} is neither 0 nor 1: set it to 1 for an fp32 LM head, and to 0, or "
            "unset it, for vLLM's own choice."
        )
    return value == "1"


def configure(model_config: ModelConfig) -> None:
    """Make a model's configuration ask for an fp32 head, if the variable does.

    Every configuration nested in the HF configuration gets the setting as well: a multimodal
    model builds its language model from a nested one, where vLLM does not look for it. Draft
    models get it, so that the cached draft distribution has the dtype of the draft's logits.
    Pooling models do not get it, because their head is no LM head.

    Args:
        model_config: A ``vllm.config.ModelConfig`` that knows its runner and its dtype. Its HF
            configuration is changed in place.

    Raises:
        ValueError: for a value of the variable that ``is_requested`` refuses; if the platform does
            not support fp32; if the HF configuration (from the checkpoint or ``hf_overrides``) has
            a ``head_dtype`` other than fp32.
    """
    if not is_requested() or model_config.runner_type == "pooling":
        return
    import torch
    from vllm.platforms import current_platform

    if torch.float32 not in current_platform.supported_dtypes:
        raise ValueError(
            f"{SWITCH}=1 asks for an fp32 LM head, but the platform "
            f"{current_platform.device_name} does not support fp32. Set {SWITCH}=0 here and in "
            "the trainer's configuration."
        )
    configs = list(_nested(model_config.hf_config))
    for path, config in configs:
        given = getattr(config, "head_dtype", None)
        if given is not None and not _is_fp32(given, model_config.dtype):
            raise ValueError(
                f"{SWITCH}=1 asks for an fp32 LM head, but the HF configuration of "
                f"{model_config.model} has {path}head_dtype={given!r}. Remove head_dtype from "
                f"hf_overrides (or from config.json), or set {SWITCH}=0."
            )
    for _, config in configs:
        config.head_dtype = "float32"
    setattr(model_config, _MARK, True)


def is_on(model_config: ModelConfig | None) -> bool:
    """Tell whether ``configure`` has turned the fp32 head on for this ``ModelConfig``.

    The mark is an attribute, so pickles and the copies that vLLM makes for nested models have it.

    Args:
        model_config: The configuration; None for an engine without one.

    Returns:
        Whether it is on.
    """
    return getattr(model_config, _MARK, False)


def check(
    model: nn.Module, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str
) -> None:
    """Check the heads of a model that has just been built, and log the dtype of its projection.

    vLLM calls it for the model and for each model nested in it. Draft models are not checked here:
    most of them drop the head that they were built with and share the target's. Their projection
    refuses a quantized head when it runs.

    Args:
        model: The model, without weights.
        vllm_config: The engine's configuration.
        model_config: The configuration of ``model``, which may be a draft or a nested model.
        prefix: Where the model is nested; empty for the outermost one.

    Raises:
        OverlayError: if somebody else has loaded a module that the overlay serves. This is the last
            place where the overlay can see that before the model gets its weights.
        ValueError: if the fp32 head is on and the projection would not run in fp32: the head is
            quantized, the model builds its head from a configuration without the setting, or it
            computes its logits without vLLM's ``LogitsProcessor``.
    """
    vllm_nemo.check_loaded()
    target = vllm_config.model_config
    if target is None or "pooling" in (target.runner_type, model_config.runner_type):
        return
    if model_config.runner_type == "draft":
        return
    from vllm.logger import init_logger
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    dtypes = {
        name: getattr(module, "head_dtype", None) or model_config.dtype
        for name, module in model.named_modules()
        if isinstance(module, LogitsProcessor) and not module.logits_as_input
    }
    if is_on(target):
        _refuse_quantized(model, model_config)
        _refuse_other_dtypes(dtypes, model_config)
        if not dtypes and not prefix:
            _refuse_own_projection(model, model_config)
    if dtypes:
        found = ", ".join(sorted({str(dtype) for dtype in dtypes.values()}))
        # Only names below "vllm" have a handler.
        init_logger("vllm.nemo.fp32_lm_head").info_once("LM head projection dtype: %s", found)


def is_unquantized(method: object) -> bool:
    """Tell whether a layer with this quantization method has a plain weight.

    A quantization that leaves the head out gives it the method of unquantized linear layers or
    that of unquantized embeddings. vLLM itself accepts both from 0.29.0 on.

    Args:
        method: A layer's ``quant_method``.

    Returns:
        Whether it is one of the two.
    """
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    return isinstance(method, (UnquantizedEmbeddingMethod, UnquantizedLinearMethod))


def current_head_dtype() -> torch.dtype | None:
    """Return the dtype of the head of the model that is being built.

    For vLLM 0.25, whose ``LogitsProcessor`` does not know the setting. To be called within
    ``set_current_vllm_config``.

    Returns:
        fp32, or None for the dtype of the model.
    """
    from vllm.config import get_current_vllm_config_or_none

    vllm_config = get_current_vllm_config_or_none()
    model_config = None if vllm_config is None else vllm_config.model_config
    if model_config is None or not is_on(model_config):
        return None
    dtype: torch.dtype = model_config.head_dtype
    return dtype


def apply_head(
    head_dtype: torch.dtype | None,
    lm_head: VocabParallelEmbedding,
    hidden_states: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Project hidden states to this rank's part of the vocabulary, in ``head_dtype``.

    For vLLM 0.25. Without a ``head_dtype``, or with the dtype of the hidden states, it does what
    the call did that it replaces.

    Args:
        head_dtype: fp32, or None for the model's dtype.
        lm_head: The layer; its weight is (vocabulary / TP, hidden).
        hidden_states: (..., hidden), in the model's dtype.
        bias: (vocabulary / TP,), or None.

    Returns:
        (..., vocabulary / TP), in ``head_dtype``.

    Raises:
        ValueError: if the head is quantized.
    """
    if head_dtype is None or head_dtype == hidden_states.dtype:
        logits: torch.Tensor = lm_head.quant_method.apply(lm_head, hidden_states, bias=bias)
        return logits
    import torch

    if not is_unquantized(lm_head.quant_method):
        raise ValueError(_quantized("lm_head", lm_head))
    rows = hidden_states.flatten(0, -2)
    columns = lm_head.weight.t()
    if rows.is_cuda:
        # CUDA and ROCm accumulate in fp32 anyway and can return that. This takes no copy of the
        # weight, and uses the matrix units of the model's dtype.
        logits = torch.mm(rows, columns, out_dtype=head_dtype)
    else:
        logits = torch.mm(rows.to(head_dtype), columns.to(head_dtype))
    if bias is not None:
        logits += bias
    return logits.unflatten(0, hidden_states.shape[:-1])


def _nested(config: PretrainedConfig) -> Iterator[tuple[str, PretrainedConfig]]:
    """Yield an HF configuration and those it holds, with the path of attributes to each."""
    found = {id(config): ("", config)}
    waiting = [("", config)]
    while waiting:
        path, config = waiting.pop()
        yield path, config
        for name, value in vars(config).items():
            if callable(getattr(value, "get_text_config", None)) and id(value) not in found:
                found[id(value)] = (f"{path}{name}.", value)
                waiting.append(found[id(value)])


def _is_fp32(given: object, model_dtype: torch.dtype) -> bool:
    if given == "model":
        given = model_dtype
    return str(given).lower() in _FP32_NAMES


def _refuse_quantized(model: nn.Module, model_config: ModelConfig) -> None:
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        VocabParallelEmbedding,
    )

    for name, module in model.named_modules(remove_duplicate=False):
        tied = name.rpartition(".")[2] == "lm_head" and isinstance(module, VocabParallelEmbedding)
        head = tied or isinstance(module, ParallelLMHead)
        if head and not is_unquantized(module.quant_method):
            raise ValueError(f"{model_config.model}: {_quantized(name, module)}")


def _quantized(name: str, head: VocabParallelEmbedding) -> str:
    return (
        f"{SWITCH}=1 needs an unquantized LM head, but the quantization of {name} is "
        f"{type(head.quant_method).__name__}. Leave {name} out of the quantization (its ignore or "
        f"exclude list), or set {SWITCH}=0 and let the trainer's head run in the same precision."
    )


def _refuse_other_dtypes(dtypes: Mapping[str, torch.dtype], model_config: ModelConfig) -> None:
    for name, dtype in dtypes.items():
        if str(dtype) != "torch.float32":
            raise ValueError(
                f"{SWITCH}=1, but {name} of {model_config.model} runs the LM head in {dtype}: the "
                "model builds it from a configuration without head_dtype. Set "
                f"{SWITCH}=0 for this model, and report it to vllm-nemo."
            )


def _refuse_own_projection(model: nn.Module, model_config: ModelConfig) -> None:
    from vllm.model_executor.models.utils import PPMissingLayer, StageMissingLayer

    # A pipeline stage other than the last, or an encoder alone, has no head.
    if any(isinstance(module, (PPMissingLayer, StageMissingLayer)) for module in model.modules()):
        return
    raise ValueError(
        f"{SWITCH}=1, but {type(model).__name__} ({model_config.model}) computes its "
        f"logits without vLLM's LogitsProcessor, in its own dtype. Set {SWITCH}=0 for this model."
    )
