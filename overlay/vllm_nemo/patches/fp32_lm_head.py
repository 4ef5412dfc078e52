"""An fp32 projection in the LM head, for every generation model, by ``NRL_VLLM_FP32_LM_HEAD=1``.

The trainer computes its logits in fp32. With a bf16 head vLLM rounds them to eight bits, and the
log-probabilities of rollouts differ from the trainer's by about 1e-2. vLLM has a setting for the
dtype of the projection, ``head_dtype`` in the model's HF configuration (vllm-project/vllm#48390,
released in 0.26.0). The patch ``fp32-lm-head`` turns it on, brings it to 0.25, and makes
everything that would leave the head in bf16 refuse to start: one side in bf16 trains worse than
both (NVIDIA-NeMo/RL#3936).

Where vLLM calls this module:

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

    Raises ValueError unless it is unset, empty, "0" or "1". "true" is refused rather than read as
    one or the other: a run whose head is in bf16 by mistake looks healthy and trains worse.
    """
    value = environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise ValueError(
            f"{SWITCH}={value!r} is neither 0 nor 1: set it to 1 for an fp32 LM head, and to 0, or "
            "unset it, for vLLM's own choice."
        )
    return value == "1"


def configure(model_config: ModelConfig) -> None:
    """Make a ``vllm.config.ModelConfig`` ask for an fp32 head, if the variable does.

    Every configuration nested in the HF configuration gets the setting as well: a multimodal
    model builds its language model from a nested one, where vLLM would not find it. Draft models
    are included, so that the cached draft distribution has the dtype of the draft's logits;
    pooling models are not: their head is no LM head.

    Raises ValueError for a value of the variable that ``is_requested`` refuses, for a platform
    without fp32, and for a ``head_dtype`` in the HF configuration (the checkpoint's own, or from
    ``hf_overrides``) that says otherwise.
    """
    if not is_requested() or model_config.runner_type == "pooling":
        return
    import torch
    from vllm.platforms import current_platform

    if torch.float32 not in current_platform.supported_dtypes:
        raise ValueError(
            f"{SWITCH}=1 asks for an fp32 LM head, and the platform "
            f"{current_platform.device_name} does not support fp32. Set {SWITCH}=0 here and in "
            "the trainer's configuration."
        )
    configs = list(_nested(model_config.hf_config))
    for path, config in configs:
        given = getattr(config, "head_dtype", None)
        if given is not None and not _is_fp32(given, model_config.dtype):
            raise ValueError(
                f"{SWITCH}=1 asks for an fp32 LM head, and the HF configuration of "
                f"{model_config.model} says {path}head_dtype={given!r}. Remove head_dtype from "
                f"hf_overrides (or from config.json), or set {SWITCH}=0."
            )
    for _, config in configs:
        config.head_dtype = "float32"
    setattr(model_config, _MARK, True)


def is_on(model_config: ModelConfig | None) -> bool:
    """Tell whether ``configure`` has turned the fp32 head on for this ``ModelConfig``.

    The answer survives pickling, and the copies that vLLM makes for a nested model.
    """
    return getattr(model_config, _MARK, False)


def check(
    model: nn.Module, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str
) -> None:
    """Check the heads of a model that has just been built, and log the dtype of its projection.

    Draft models are left to the check that runs with their first token: most of them drop the head
    they were built with and share the target's.

    Called for the model and for models nested in it (``prefix`` is then not empty). Raises
    ValueError, if the fp32 head is on, where the projection would not run in fp32: a quantized
    head, or a model that does not pass vLLM's setting on.
    """
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
    """Tell whether a layer with this quantization method keeps its weight as it is.

    A quantization that leaves the head out gives it the method of unquantized linear layers,
    others that of unquantized embeddings (vLLM accepts both from 0.29.0).
    """
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    return isinstance(method, (UnquantizedEmbeddingMethod, UnquantizedLinearMethod))


def current_head_dtype() -> torch.dtype | None:
    """Return the dtype that the head of the model being built is to run in; None for the model's.

    For vLLM 0.25, whose ``LogitsProcessor`` does not know the setting.
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

    For vLLM 0.25. Without a dtype, or with that of the hidden states, this is the call that it
    replaces.

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
        # CUDA and ROCm accumulate in fp32 anyway and can hand that out: no copy of the weight,
        # and the matrix units of the model's dtype.
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
        f"{SWITCH}=1 needs an unquantized LM head, and the quantization of {name} is "
        f"{type(head.quant_method).__name__}. Leave {name} out of the quantization (its ignore or "
        f"exclude list), or set {SWITCH}=0 and let the trainer's head run in the same precision."
    )


def _refuse_other_dtypes(dtypes: Mapping[str, torch.dtype], model_config: ModelConfig) -> None:
    for name, dtype in dtypes.items():
        if str(dtype) != "torch.float32":
            raise ValueError(
                f"{SWITCH}=1, but {name} of {model_config.model} runs the LM head in {dtype}: the "
                "model builds its language model from a configuration that vLLM's head_dtype does "
                f"not reach. Set {SWITCH}=0 for this model, and report it to vllm-nemo."
            )


def _refuse_own_projection(model: nn.Module, model_config: ModelConfig) -> None:
    from vllm.model_executor.models.utils import PPMissingLayer, StageMissingLayer

    # A stage of the pipeline, or an encoder by itself, has no head.
    if any(isinstance(module, (PPMissingLayer, StageMissingLayer)) for module in model.modules()):
        return
    raise ValueError(
        f"{SWITCH}=1, but {type(model).__name__} ({model_config.model}) computes its "
        f"logits without vLLM's LogitsProcessor, in its own dtype. Set {SWITCH}=0 for this model."
    )
