"""NeMo-RL's own names, so that it changes one import and deletes its run-time patcher.

Each name has the signature that it has in ``nemo_rl.models.generation.vllm.patches``. Nothing here
patches anything.

The functions ``_patch_vllm_*`` check one patch each. They log at level INFO, by the logger that
they are given, that the overlay carries the patch or that this vLLM does not need it. Otherwise
those that return nothing raise OverlayError, where the originals logged a warning and went on.
Those that return a ``bool`` return False, and raise OverlayError if called with ``required=True``.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NoReturn

from vllm_nemo._overlay import api, finder, outcomes
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.switches import FP32_LM_HEAD
from vllm_nemo._overlay.worker import prepare_worker, require_overlay

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Sequence

    import torch

__all__ = [
    "VLLM_NEMOTRON_H_FP32_LM_HEAD_ENV_VAR",
    "_apply_vllm_patches",
    "_get_vllm_file",
    "_locked_file_patch",
    "_patch_vllm_glm_decoder_sequence_parallel_moe",
    "_patch_vllm_init_workers_ray",
    "_patch_vllm_llama_eagle3_own_lm_head",
    "_patch_vllm_moe_routed_experts_capture",
    "_patch_vllm_nemotron_h_fp32_lm_head",
    "_patch_vllm_radio_final_layernorm",
    "_patch_vllm_radio_layerscale_loader",
    "_patch_vllm_radio_native_loader",
    "_patch_vllm_ray_executor_v2_tcpstore_port",
    "_patch_vllm_routed_experts_capture_router_fallback",
    "_patch_vllm_shm_broadcast_bind_retry",
    "_patch_vllm_tool_parser_namespace_tool",
    "ensure_vllm_source_compat",
    "modelopt_moe_amax_aliases",
]

VLLM_NEMOTRON_H_FP32_LM_HEAD_ENV_VAR = FP32_LM_HEAD


def _apply_vllm_patches(
    py_executable: str,
    *,
    extra_env_vars: list[str] | None = None,
    nemotron_h_fp32_lm_head: bool | None = None,
    require_moe_routed_experts_capture: bool = False,
    require_dsa_topk_capture: bool = False,
    dsa_topk_layer_ids: list[int] | None = None,
) -> None:
    """Prepare a generation worker: ``vllm_nemo.prepare_worker`` under NeMo-RL's names.

    Args:
        py_executable: The interpreter for Ray workers.
        extra_env_vars: Names of further variables that Ray workers get from this process.
        nemotron_h_fp32_lm_head: True for logits from an fp32 projection; None and False clear the
            variable that switches it on. It is for every model, whatever the name says.
        require_moe_routed_experts_capture: True if the caller will ask for routed experts.
        require_dsa_topk_capture: True if the caller will ask for DSA top-k indices, for which the
            overlay has no patch yet.
        dsa_topk_layer_ids: The layers whose indices the caller will ask for, each once.

    Raises:
        OverlayError: if the overlay does not have what is required, is switched off, or is not for
            the vLLM that is installed.
        ValueError: if arguments contradict each other, or are not valid.
    """
    if require_moe_routed_experts_capture and require_dsa_topk_capture:
        raise ValueError(
            "Routed experts and DSA top-k indices come back on the same channel of vLLM, so only "
            "one of them can be required"
        )
    if dsa_topk_layer_ids is not None:
        _check_layer_ids(dsa_topk_layer_ids, required=require_dsa_topk_capture)
    if require_dsa_topk_capture:
        manifest = load_manifest()
        raise OverlayError(
            f"DSA top-k capture is required, and vllm-nemo {manifest.overlay} for vLLM "
            f"{manifest.base.version} has no patch for it (no release of vllm-nemo has yet). "
            "Start without it, or keep NeMo-RL's own patcher for such runs."
        )
    prepare_worker(
        py_executable=py_executable,
        extra_env_vars=extra_env_vars,
        fp32_lm_head=nemotron_h_fp32_lm_head,
        require_routed_experts_capture=require_moe_routed_experts_capture,
    )


def _check_layer_ids(layer_ids: Sequence[int], *, required: bool) -> None:
    if not required:
        raise ValueError("dsa_topk_layer_ids goes with require_dsa_topk_capture=True")
    if any(layer < 0 for layer in layer_ids) or len(set(layer_ids)) != len(layer_ids):
        raise ValueError(f"dsa_topk_layer_ids must be 0 or more, each once: {layer_ids}")


def ensure_vllm_source_compat() -> None:
    """Check that this process has the overlay, matched to its vLLM. Writes nothing.

    For programs that use vLLM without a generation worker. It may be called any number of times.

    Raises:
        OverlayError: if the overlay is switched off or not active, or vLLM is missing or is not the
            one that the overlay was built for.
    """
    require_overlay()


@contextlib.contextmanager
def modelopt_moe_amax_aliases(model: torch.nn.Module) -> Iterator[None]:
    """Make nested ModelOpt amax buffers visible under dotted names while the context is open.

    vLLM's ``RoutedExperts.load_weights`` turns a checkpoint's expert amax keys into names such as
    ``w13_input_quantizer._amax`` and looks each up with one ``getattr``, which finds nothing below
    a quantizer module. Here each module that has such a quantizer as a direct child gets an
    attribute of that dotted name, for children named ``w13_*`` or ``w2_*`` and ``*_quantizer``
    and their own buffers that end in ``_amax``.

    An alias is the buffer itself, of whatever shape and dtype: nothing is copied and nothing
    registered, so parameters, buffers and state dict stay as they are. An attribute that exists
    already, for example from an outer context, is left to whoever made it. On leaving, by an error
    too, those made here are taken away again.

    Create it after the model has reached its device and dtype, around the loading of weights only:
    moving a module replaces its buffers. The buffers need a ``weight_loader``, as all that vLLM
    loads. Weights that arrive through a reload on meta tensors are not reached by it.

    Args:
        model: The model whose MoE quantizers are about to be loaded.

    Yields:
        None.
    """
    with contextlib.ExitStack() as undo:
        for module in model.modules():
            for name, child in module.named_children():
                if not (name.startswith(("w13_", "w2_")) and name.endswith("_quantizer")):
                    continue
                for buffer_name, buffer in child.named_buffers(recurse=False):
                    alias = f"{name}.{buffer_name}"
                    if buffer_name.endswith("_amax") and not hasattr(module, alias):
                        # Past nn.Module's own __setattr__, which is for what is registered.
                        vars(module)[alias] = buffer
                        undo.callback(_remove_alias, module, alias, buffer)
        yield


def _remove_alias(module: torch.nn.Module, alias: str, buffer: torch.Tensor) -> None:
    if vars(module).get(alias) is buffer:
        del vars(module)[alias]


def _get_vllm_file(relative_path: str) -> str:
    """Return the file that ``vllm/<relative_path>`` is loaded from: served, else stock.

    Args:
        relative_path: The path below ``vllm/``, with slashes.

    Returns:
        The path of the file.

    Raises:
        RuntimeError: if there is no such file or no vLLM, as in the original.
    """
    directory = api.vllm_directory()
    if directory is None:
        raise RuntimeError(f"vLLM is not installed here, so it has no {relative_path!r}")
    if finder.is_switched_on():
        manifest = load_manifest()
        for module in manifest.modules.values():
            if module.path == f"vllm/{relative_path}":
                return str(manifest.served_file(module))
    file = directory.joinpath(*relative_path.split("/"))
    if not file.exists():
        raise RuntimeError(f"The vLLM in {directory} has no {relative_path!r}")
    return str(file)


def _locked_file_patch(file_path: str) -> NoReturn:
    """Refuse to rewrite a file: the overlay's vLLM is not to be patched at run time.

    Raises:
        OverlayError: always.
    """
    raise OverlayError(
        f"vllm-nemo patches at build time only, and does not rewrite {os.fspath(file_path)}. Put "
        "the change into the patch queue and build a wheel with it (docs/porting.md)."
    )


def _confirm(patch_id: str, logger: logging.Logger) -> None:
    """Log that the overlay carries a patch, or that this vLLM does not need it; else raise."""
    require_overlay()
    found = {patch.id: patch for patch in api.list_patches()}
    if patch_id in found and found[patch_id].outcome == outcomes.NOT_NEEDED:
        logger.info("This vLLM does not need the patch %s.", patch_id)
        return
    api.require(patch_id)
    logger.info("vllm-nemo carries the patch %s.", patch_id)


def _has(patch_id: str, logger: logging.Logger, *, required: bool) -> bool:
    """Tell whether ``_confirm`` finds the patch; raise only if it is required."""
    try:
        _confirm(patch_id, logger)
    except OverlayError:
        if required:
            raise
        logger.warning("vllm-nemo does not carry the patch %s here.", patch_id, exc_info=True)
        return False
    return True


def _patch_vllm_init_workers_ray(py_executable: str, extra_env_vars: list[str] | None) -> bool:
    """Set the interpreter and the variables of Ray workers, for both of vLLM's Ray executors.

    Args:
        py_executable: The interpreter.
        extra_env_vars: Names of further variables that Ray workers get from this process.

    Returns:
        True.

    Raises:
        OverlayError: as ``_apply_vllm_patches`` does.
    """
    prepare_worker(
        py_executable=py_executable,
        extra_env_vars=extra_env_vars,
        # This call is not about the LM head: what was decided for it before stays.
        fp32_lm_head=os.environ.get(FP32_LM_HEAD) == "1",
    )
    return True


def _patch_vllm_llama_eagle3_own_lm_head(logger: logging.Logger) -> None:
    """Confirm that a draft head is never shared with a target head of another size."""
    _confirm("eagle3-draft-lm-head", logger)


def _patch_vllm_tool_parser_namespace_tool(logger: logging.Logger) -> None:
    """Confirm that vLLM works with openai clients older than 2.25."""
    _confirm("openai-namespace-tool", logger)


def _patch_vllm_ray_executor_v2_tcpstore_port(logger: logging.Logger) -> None:
    """Confirm that the TCPStore's port cannot be taken between its choice and its use."""
    _confirm("ray-tcpstore-port", logger)


def _patch_vllm_shm_broadcast_bind_retry(logger: logging.Logger) -> None:
    """Confirm that message queues bind in the reserved band."""
    _confirm("mq-port-band", logger)


def _patch_vllm_radio_layerscale_loader(logger: logging.Logger) -> None:
    """Confirm that RADIO's LayerScale weights are loaded."""
    _confirm("radio-layerscale", logger)


def _patch_vllm_radio_native_loader(logger: logging.Logger) -> None:
    """Confirm that RADIO's transformers-native names are loaded."""
    _confirm("radio-native-names", logger)


def _patch_vllm_radio_final_layernorm(logger: logging.Logger) -> None:
    """Confirm that the vision tower's final LayerNorm exists."""
    _confirm("radio-final-layernorm", logger)


def _patch_vllm_glm_decoder_sequence_parallel_moe(logger: logging.Logger) -> None:
    """Confirm that the sequence-parallel layout of a DeepSeek-style decoder is not guessed."""
    _confirm("glm-dsa-sequence-parallel-moe", logger)


def _patch_vllm_moe_routed_experts_capture(
    logger: logging.Logger, *, required: bool = False
) -> bool:
    """Tell whether monolithic MoE kernels have their routed experts captured."""
    return _has("routed-experts-capture", logger, required=required)


def _patch_vllm_routed_experts_capture_router_fallback(
    logger: logging.Logger, *, required: bool = False
) -> bool:
    """Tell whether capture falls back to the router: part of the patch for the capture itself."""
    return _has("routed-experts-capture", logger, required=required)


def _patch_vllm_nemotron_h_fp32_lm_head(logger: logging.Logger) -> bool:
    """Tell whether the switch for an fp32 LM head is built in."""
    return _has("fp32-lm-head", logger, required=False)
