"""What the tests use of vLLM's internals. A release that moves something breaks this file alone.

For scenario scripts, which run in an interpreter that has vLLM. Nothing of vLLM is imported before
it is asked for, because a script sets environment variables first. There are two kinds of access:

- Names of modules and classes, such as ``vllm_internals.LogitsProcessor``. ``_PLACES`` tells where
  each is found, and in which releases.
- Functions for what takes more than a name. ``known`` tells for which releases each was written.

Both raise UnknownReleaseError on any other release. It says what to look at, if that is known.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

FIRST = "0.25.0"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class UnknownReleaseError(RuntimeError):
    """An access that nobody has looked at for the vLLM that is installed."""


class Place(NamedTuple):
    """Where a name is found: from the release ``since`` on, and before ``until``."""

    module: str
    since: str = FIRST
    until: str | None = None
    note: str = ""


_CONFIG = "vllm.config"
_DISTRIBUTED = "vllm.distributed"
_LAYERS = "vllm.model_executor.layers"
_LOADER = "vllm.model_executor.model_loader"
_MODELS = "vllm.model_executor.models"
_MOE = f"{_LAYERS}.fused_moe"

# A name that is a module is found in its package.
_PLACES: Mapping[str, Sequence[Place]] = {
    # Configuration and parallel groups
    "EngineArgs": [Place("vllm.engine.arg_utils")],
    "LoRAConfig": [Place(f"{_CONFIG}.lora")],
    "ParallelConfig": [Place(_CONFIG)],
    "SpeculativeConfig": [Place(_CONFIG)],
    "VllmConfig": [Place(_CONFIG)],
    "current_platform": [Place("vllm.platforms")],
    "get_open_port": [Place("vllm.utils.network_utils")],
    "set_current_vllm_config": [Place(_CONFIG)],
    "set_default_torch_dtype": [Place("vllm.utils.torch_utils")],
    "set_forward_context": [Place("vllm.forward_context")],
    # Layers
    "Attention": [Place(f"{_LAYERS}.attention")],
    "CommonAttentionMetadata": [Place("vllm.v1.attention.backend")],
    "LogitsProcessor": [Place(f"{_LAYERS}.logits_processor")],
    "LogitsProcessorWithLoRA": [Place("vllm.lora.layers.logits_processor")],
    "LoRAMapping": [Place("vllm.lora.layers")],
    "ModelOptFp8Config": [Place(f"{_LAYERS}.quantization.modelopt")],
    "ModelOptNvFp4Config": [Place(f"{_LAYERS}.quantization.modelopt")],
    "ParallelLMHead": [Place(f"{_LAYERS}.vocab_parallel_embedding")],
    "dequantize_to_dtype": [Place(f"{_LAYERS}.quantization.utils.nvfp4_emulation_utils")],
    "get_punica_wrapper": [Place("vllm.lora.punica_wrapper")],
    # Models
    "LlamaForCausalLM": [Place(f"{_MODELS}.llama")],
    "NemotronHConfig": [
        Place(
            "vllm.transformers_utils.configs.nemotron_h",
            until="0.32.0",
        ),
        # Its fields have other names, but it takes those of the checkpoints.
        Place("transformers", since="0.32.0"),
    ],
    "Qwen3NextConfig": [Place("vllm.transformers_utils.configs.qwen3_next")],
    "RadioConfig": [Place("vllm.transformers_utils.configs.radio")],
    "RadioModel": [Place(f"{_MODELS}.radio")],
    "deepseek_eagle": [Place(_MODELS)],
    "deepseek_mtp": [Place(_MODELS)],
    "deepseek_v2": [Place(_MODELS)],
    "qwen3_next": [Place(_MODELS)],
    "registry": [Place(_MODELS)],
    # MoE
    "BaseRouter": [Place(f"{_MOE}.router.base_router")],
    "FusedMoEExpertsMonolithic": [Place(f"{_MOE}.modular_kernel")],
    "FusedMoERouter": [Place(f"{_MOE}.router.fused_moe_router")],
    "MoERunner": [Place(f"{_MOE}.runner.moe_runner")],
    "RoutingMethodType": [Place(f"{_MOE}.config")],
    # Refits
    "WeightTransferEngine": [Place(f"{_DISTRIBUTED}.weight_transfer.base")],
    "WeightTransferEngineFactory": [Place(f"{_DISTRIBUTED}.weight_transfer.factory")],
    "WeightTransferInitInfo": [Place(f"{_DISTRIBUTED}.weight_transfer.base")],
    "WeightTransferUpdateInfo": [Place(f"{_DISTRIBUTED}.weight_transfer.base")],
    # Processes and nodes
    "CpuCommunicator": [Place(f"{_DISTRIBUTED}.device_communicators.cpu_communicator")],
    "MessageQueue": [Place(f"{_DISTRIBUTED}.device_communicators.shm_broadcast")],
    "RayExecutorV2": [Place("vllm.v1.executor.ray_executor_v2")],
    "RayWorkerProc": [Place("vllm.v1.executor.ray_executor_v2")],
    "get_env_vars_to_copy": [Place("vllm.ray.ray_env")],
    "get_tp_group": [Place(f"{_DISTRIBUTED}.parallel_state")],
    "load_general_plugins": [Place("vllm.plugins")],
    "ray_executor": [
        Place("vllm.v1.executor", until="0.33.0", note="the v1 executor's file is gone")
    ],
    "shm_broadcast": [Place(f"{_DISTRIBUTED}.device_communicators")],
    "VLLMValidationError": [Place("vllm.exceptions")],
}


def find(name: str) -> Any:
    """Find a name in the vLLM that is installed.

    Raises:
        AttributeError: if the name is in no place that is known.
        UnknownReleaseError: if it is in none for this release.
    """
    places = _PLACES.get(name)
    if places is None:
        raise AttributeError(f"{__name__} knows no place of {name!r}")
    for place in places:
        if _holds(place.since, place.until):
            module = importlib.import_module(place.module)
            if not hasattr(module, name):
                importlib.import_module(f"{place.module}.{name}")
            return getattr(module, name)
    raise _unknown(name, [(place.since, place.until, place.note) for place in places])


# `vllm_internals.LogitsProcessor`, and `from tests.support.vllm_internals import LogitsProcessor`
__getattr__ = find


def known(
    since: str = FIRST, until: str | None = None, note: str = ""
) -> Callable[[_Function], _Function]:
    """Mark a function as written for releases from ``since`` on, and before ``until``.

    Args:
        since: The first release.
        until: The first release that it was not written for; None if no such release is known.
        note: What is different there.

    Returns:
        A decorator, whose function raises UnknownReleaseError on another release.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            if not _holds(since, until):
                raise _unknown(function.__qualname__, [(since, until, note)])
            return function(*arguments, **keywords)

        return checked

    return decorate


def at_least(release: str) -> bool:
    """Tell whether the vLLM that is installed is this release, or a newer one."""
    return _holds(release, None)


def _holds(since: str, until: str | None) -> bool:
    installed = _numbers(_version())
    return _numbers(since) <= installed and (until is None or installed < _numbers(until))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, whatever follows them (``0.29.0+cpu``, ``0.30.0rc1``)."""
    from packaging.version import Version

    return Version(version).release


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def _unknown(name: str, ranges: Sequence[tuple[str, str | None, str]]) -> UnknownReleaseError:
    told = ", ".join(
        f"{since} and later" if until is None else f"{since} to before {until}"
        for since, until, _ in ranges
    )
    notes = "".join(f" ({note})" for _, _, note in ranges if note)
    return UnknownReleaseError(
        f"tests/support/vllm_internals.py has {name} for vLLM {told}{notes}; this is vLLM "
        f"{_version()}. Look for it in that release and add what you find there."
    )


# Configurations, parallel groups, models


def configuration(model: object, **options: Any) -> Any:
    """Make the configuration of an engine, as ``LLM(model, **options)`` does."""
    return find("EngineArgs")(model=str(model), **options).create_engine_config()


@known()
def start_parallel_groups(
    config: Any, rank: int = 0, world: int = 1, device: str = "cpu", rendezvous: str = ""
) -> None:
    """Make this process one of the tensor-parallel ranks that vLLM's layers need, even if alone.

    Args:
        config: The ``VllmConfig`` to do it under.
        rank: This process's rank.
        world: How many ranks there are.
        device: "cpu" or "cuda".
        rendezvous: The URL where the ranks meet; needed if there is more than one.
    """
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment

    with find("set_current_vllm_config")(config):
        init_distributed_environment(
            world_size=world,
            rank=rank,
            local_rank=rank,
            distributed_init_method=rendezvous or f"file://{tempfile.mkdtemp(dir=Path.cwd())}/url",
            backend="nccl" if device == "cuda" else "gloo",
        )
        ensure_model_parallel_initialized(world, 1)


@known()
def load_model(config: Any, model_config: Any = None, prefix: str = "") -> Any:
    """Build a model and load its weights, as a worker does."""
    import torch
    from vllm.model_executor.model_loader import get_model

    if at_least("0.32.0") and not torch.accelerator.is_available():
        # The loader calls it. It raises where there is none, but for what a CPU's worker does.
        torch.accelerator.empty_cache = lambda: None
    with find("set_current_vllm_config")(config):
        return get_model(vllm_config=config, model_config=model_config, prefix=prefix)


@known()
def construct_model(config: Any, dtype: Any) -> Any:
    """Build a model without weights."""
    from vllm.model_executor.model_loader.utils import initialize_model

    with find("set_current_vllm_config")(config), find("set_default_torch_dtype")(dtype):
        return initialize_model(config)


@known()
def keep_weights_live(device: str) -> None:
    """Stop the CPU backend from packing linear weights, after which none can be loaded.

    CUDA keeps the weights as they are, and so a trainer loads them into a running engine. On a CPU
    this makes the same possible; what is computed does not change.
    """
    if device != "cpu":
        return
    import torch
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    def process_weights_after_loading(self: Any, layer: Any) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    UnquantizedLinearMethod.process_weights_after_loading = process_weights_after_loading


def process_weights(module: Any) -> None:
    """Do with a layer's weights what vLLM does after they were loaded."""
    module.quant_method.process_weights_after_loading(module)


def model_class_information(model_class: type) -> Any:
    """Return what vLLM's registry records about a model class, a dataclass."""
    return find("registry")._ModelInfo.from_model_cls(model_class)


def run_in_registry_process(function: Callable[[], Any]) -> Any:
    """Call a function in the kind of process that vLLM starts to look at a model class."""
    return find("registry")._run_in_subprocess(function)


# Refits


@known()
def record_for_refit(model: Any, device: str) -> None:
    """Note of a new model what vLLM's own refit needs to know."""
    import torch
    from vllm.model_executor.model_loader.reload.layerwise import record_metadata_for_reloading

    with torch.device(device):
        record_metadata_for_reloading(model)


@known()
def start_refit(model: Any, device: object = "cpu") -> None:
    """Begin vLLM's own, layerwise refit of a model."""
    import torch
    from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

    with torch.device(device):
        initialize_layerwise_reload(model)


@known()
def finish_refit(model: Any, model_config: Any, device: object = "cpu") -> None:
    """End vLLM's own refit; all it reads of the configuration is the dtype of attention layers."""
    import torch
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

    with torch.device(device):
        finalize_layerwise_reload(model, model_config)


@contextlib.contextmanager
def refit(model: Any, model_config: Any, device: object = "cpu") -> Iterator[None]:
    """Put what is loaded meanwhile through vLLM's own refit."""
    start_refit(model, device)
    try:
        yield
    finally:
        finish_refit(model, model_config, device)


# Speculative decoding


@known()
def share_head_v1(draft: Any, target: Any, config: Any) -> None:
    """Let the V1 proposer decide whether a draft model gets the target's head."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    proposer = SpecDecodeBaseProposer.__new__(SpecDecodeBaseProposer)
    proposer.vllm_config = config
    proposer.use_local_argmax_reduction = False
    proposer.model = draft
    proposer._maybe_share_lm_head(target)


@known()
def share_head_v2(draft: Any, target: Any) -> None:
    """Let the decision of the V2 runner's loaders say whether a draft model gets the target's."""
    from vllm.v1.worker.gpu.spec_decode.eagle.utils import _should_share

    if _should_share(draft, "has_own_lm_head", draft.lm_head, target.lm_head):
        draft.lm_head = target.lm_head


@known()
def load_draft_v2(method: str, target: Any, config: Any) -> Any:
    """Load a draft model by the V2 runner's loader for a method, which also shares the head."""
    if method == "dflash":
        from vllm.v1.worker.gpu.spec_decode.dflash.utils import load_dflash_model as load
    else:
        from vllm.v1.worker.gpu.spec_decode.eagle.utils import load_eagle_model as load
    return load(target, config)


def draft_of(worker: Any) -> Any:
    """Return the draft model of a worker."""
    return worker.model_runner.drafter.model


def cached_draft_dtype(config: Any) -> str | None:
    """Return the dtype of the cached draft distribution if the head decides it, since 0.28.0."""
    if not at_least("0.28.0"):
        return None
    from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

    return str(DraftModelSpeculator.draft_logits_spec(None, config)[0])


# Routed experts


@known()
def make_moe_layer(**options: Any) -> Any:
    """Build a MoE layer; its experts are ``routed_experts``."""
    from vllm.model_executor.layers import fused_moe

    name = "FusedMoEFactory" if at_least("0.27.0") else "FusedMoE"
    return getattr(fused_moe, name)(**options)


def moe_layers(model: Any) -> list[Any]:
    """Return the MoE runners of a model."""
    return [m for m in model.modules() if isinstance(m, find("MoERunner"))]


@known()
def moe_kernel(runner: Any) -> Any:
    """Return the experts that a MoE layer computes with; None where it has no kernel object."""
    kernel = runner._quant_method.moe_kernel
    return None if kernel is None else kernel.impl.fused_experts


@known()
def run_moe_layer(runner: Any, hidden_states: Any, router_logits: Any) -> Any:
    """Let a MoE layer compute as it does in a step."""
    return runner._apply_quant_method(hidden_states, router_logits, None)


@known()
def bind_capture(model: Any, runner: Any, capturer: Any) -> None:
    """Bind a model's MoE layers to a capturer, as the model runner does when it starts."""
    if at_least("0.28.0"):
        from vllm.model_executor.layers.fused_moe import routed_experts_capturer

        routed_experts_capturer.bind_routed_experts_capturer(model, capturer)
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    layers = types.SimpleNamespace(static_forward_context={runner.layer_name: runner})
    model_runner = types.SimpleNamespace(model=model, compilation_config=layers)
    GPUModelRunner._bind_routed_experts_capturer(model_runner, capturer)


@known()
def run_kernel(runner: Any, kernel: Any, hidden_states: Any) -> Any:
    """Let a layer's monolithic kernel compute, and what it reports go where the release sends it.

    Args:
        runner: The layer; since 0.32.0 its ``routed_experts.routing_sink`` gets the ids.
        kernel: The experts. Its ``expert`` is the one that it sends every token to, and it reports
            that if ``reports`` is set.
        hidden_states: (tokens, hidden).
    """
    if not at_least("0.32.0"):
        result = kernel.apply(hidden_states)
        if kernel.reports:
            tokens = len(hidden_states)
            buffer = kernel._maybe_make_routing_replay_buffer(tokens, hidden_states.device)
            if buffer is not None:
                buffer[:tokens] = kernel.expert
            kernel._maybe_dispatch_routing_replay(buffer, tokens)
        return result
    from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernelMonolithicImpl

    def apply(hidden_states: Any, routing_replay_out: Any, **_: Any) -> Any:
        if routing_replay_out is not None:
            routing_replay_out.fill_(kernel.expert)
        return kernel.apply(hidden_states)

    experts = types.SimpleNamespace(
        apply=apply,
        supports_routing_replay_capture=kernel.supports_routing_replay_capture,
        quant_config=None,
        expects_unquantized_inputs=False,
    )
    prepare_finalize = types.SimpleNamespace(
        prepare=lambda hidden_states, router_logits, **_: (hidden_states, None, router_logits),
        finalize=lambda result: result,
    )
    arguments = dict.fromkeys(("w1", "w2", "router_logits", "activation", "expert_map"))
    return FusedMoEKernelMonolithicImpl(prepare_finalize, experts).apply(
        hidden_states,
        **arguments,
        global_num_experts=16,
        apply_router_weight_on_input=False,
        routing_sink=runner.routed_experts.routing_sink,
    )


def allow_float32_experts() -> None:
    """Let 0.27 run MoE layers in float32 on a CPU with AMX, which it takes for badly aligned ones.

    Float32 makes routes comparable, so such a CPU passes for one without AMX.
    """
    if at_least("0.27.0") and not at_least("0.28.0"):
        import torch

        torch.cpu._is_amx_tile_supported = lambda: False


@known()
def add_topk_softmax() -> None:
    """Give a CPU the operator of the default router, which vLLM has for GPUs only.

    Without it that router cannot route, and the patch refuses to capture.
    """
    import torch

    if hasattr(torch.ops._moe_C, "topk_softmax") or torch.cuda.is_available():
        return
    library = torch.library.Library("_moe_C", "FRAGMENT")
    _libraries.append(library)
    # 0.25 and 0.26 pass no is_padding.
    library.define(
        "topk_softmax(Tensor(a!) weights, Tensor(b!) ids, Tensor(c!) rows, Tensor logits, "
        "bool renormalize, Tensor? bias, Tensor? is_padding=None) -> ()"
    )

    def topk_softmax(
        weights: Any,
        ids: Any,
        rows: Any,
        logits: Any,
        renormalize: bool,
        bias: Any,
        is_padding: Any = None,
    ) -> None:
        best, chosen = logits.float().softmax(-1).topk(ids.shape[1])
        weights.copy_(best / best.sum(-1, keepdim=True) if renormalize else best)
        ids.copy_(chosen)

    library.impl("topk_softmax", topk_softmax, "CPU")


# An operator is there as long as its library.
_libraries: list[Any] = []


# Sequence-parallel MoE


@known()
def parallel_configuration(data: int, tensor: int, port: int) -> Any:
    """Make the parallel configuration of a MoE model; with ranks, experts are spread over all."""
    config = find("ParallelConfig")(
        tensor_parallel_size=tensor,
        data_parallel_size=data,
        data_parallel_size_local=data,
        data_parallel_master_port=port,
        enable_expert_parallel=tensor > 1,
        distributed_executor_backend="mp",
        is_moe_model=True,
    )
    config.data_parallel_master_port = port
    config._data_parallel_master_port_list = []
    return config


@known()
def set_rank(config: Any, data: int, tensor: int) -> None:
    """Tell a configuration which rank its process is."""
    config.parallel_config.data_parallel_rank = data
    config.parallel_config.data_parallel_index = data
    config.parallel_config.rank = tensor


@known()
def add_collectives(gather: Callable[..., Any], scatter: Callable[..., Any]) -> None:
    """Give the CPU's communicator the two collectives of the all-to-all manager that it lacks."""
    communicator = find("CpuCommunicator")
    communicator.all_gatherv = gather
    communicator.reduce_scatterv = scatter


@known()
def replace_experts(model: Any, experts: Callable[..., Any]) -> None:
    """Let a function compute every layer's experts; finish all other weights as vLLM does."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if hasattr(module, "w13_weight"):
            # Since 0.30.0 a CPU's experts are told what the router selected.
            monolithic = {"is_monolithic": True, "apply_monolithic": staticmethod(experts)}
            method.__class__ = type("Replaced", (type(method),), monolithic)
        elif hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(module)


@known(since="0.26.0", until="0.28.0", note="fixed upstream, so the tests leave it out")
def deepseek_v32(attention: Callable[[type], type]) -> Any:
    """Import models/deepseek_v32, which is for CUDA, on a CPU.

    Args:
        attention: Makes an attention layer for it of DeepSeek's without MLA.

    Returns:
        The module.
    """
    # It imports CUDA operators; without them the model takes two steps in place of a fused one.
    fused = types.ModuleType(f"{_LAYERS}.fused_allreduce_gemma_rms_norm")
    fused._AR_RESIDUAL_RMS_NORM = None
    fused._can_use_flashinfer = None
    fused.flashinfer_trtllm_fused_allreduce_norm = None
    sys.modules[fused.__name__] = fused
    from vllm.models.deepseek_v32.nvidia import model

    model.DeepseekV32Attention = attention(find("deepseek_v2").DeepseekV2Attention)
    return model


class Attending:
    """KV caches of a model's attention layers, and the context of one forward pass on a CPU."""

    @known()
    def __init__(self, config: Any) -> None:
        import torch

        self._config = config
        self._builders: dict[str, Any] = {}
        for name, layer in config.compilation_config.static_forward_context.items():
            if isinstance(layer, find("Attention")):
                spec = layer.get_kv_cache_spec(config)
                layer.kv_cache = torch.zeros(
                    1, spec.num_kv_heads, spec.block_size, 2 * spec.head_size
                )
                builder = layer.get_attn_backend().get_builder_cls()
                self._builders[name] = builder(spec, [name], config, torch.device("cpu"))

    def context(self, positions: Any, counts: tuple[int, int]) -> Any:
        """Return the context to run one sequence in.

        Args:
            positions: (tokens,), int64: consecutive, in the sequence's only block.
            counts: How many tokens each data-parallel half has.
        """
        import torch

        count = positions.shape[0]
        length = int(positions[-1]) + 1
        common = find("CommonAttentionMetadata")(
            query_start_loc=torch.tensor([0, count], dtype=torch.int32),
            query_start_loc_cpu=torch.tensor([0, count], dtype=torch.int32),
            seq_lens=torch.tensor([length], dtype=torch.int32),
            num_reqs=1,
            num_actual_tokens=count,
            max_query_len=count,
            max_seq_len=length,
            block_table_tensor=torch.zeros(1, 1, dtype=torch.int32),
            slot_mapping=positions,
        )
        metadata = {name: builder.build(0, common) for name, builder in self._builders.items()}
        parallel = self._config.parallel_config.data_parallel_size > 1
        return find("set_forward_context")(
            metadata,
            self._config,
            num_tokens=count,
            num_tokens_across_dp=torch.tensor(counts, dtype=torch.int32) if parallel else None,
            slot_mapping=dict.fromkeys(metadata, positions),
        )


# Ports, Ray, nodes


def after_probe(hook: Callable[[], None]) -> None:
    """Call a function between a message queue's probe of a port and its bind.

    For releases before 0.28.0; since then nothing is probed.
    """
    if at_least("0.28.0"):
        return
    module = find("shm_broadcast")
    probe = module.get_open_port

    def hold_back() -> int:
        port: int = probe()
        hook()
        return port

    module.get_open_port = hold_back


@known()
def pick_store_port(config: Any) -> int | None:
    """Pick a port for the TCPStore, as RayExecutorV2's driver does; None if rank 0 holds a store.

    Stock vLLM picks before 0.29.0; the overlay never does.
    """
    if rank_0_holds_the_store():
        return None
    port: int = find("RayExecutorV2")._select_tcpstore_port(
        config.data_parallel_rank_local, config.data_parallel_master_port
    )
    return port


def rank_0_holds_the_store() -> bool:
    """Tell whether rank 0's worker of RayExecutorV2 makes the store."""
    return hasattr(find("RayWorkerProc"), "create_dist_init_method")


@known()
def hold_store(config: Any, environ: dict[str, str]) -> tuple[str, Any]:
    """Let rank 0's worker of RayExecutorV2 make the store.

    Returns:
        Where the ranks meet, and the worker: it holds the socket for as long as it lives.
    """
    worker = find("RayWorkerProc")(
        vllm_config=types.SimpleNamespace(parallel_config=config),
        rank=0,
        input_shm_handle=None,
        is_driver_worker=True,
    )
    # The overlay's asks for the driver's environment.
    wanted = inspect.signature(worker.create_dist_init_method).parameters
    url: str = worker.create_dist_init_method(*([environ] if wanted else []))
    return url, worker


@known(until="0.33.0", note="the v1 executor's file is gone")
def ray_workers_v1(worker_class: type) -> tuple[list[Any], Any]:
    """Let RayDistributedExecutor start its workers.

    Args:
        worker_class: What an actor runs in the place of vLLM's worker.

    Returns:
        The actors, and the placement group that they are in.
    """
    module = find("ray_executor")
    module.RayWorkerWrapper = worker_class
    executor = object.__new__(module.RayDistributedExecutor)
    executor.parallel_config = find("ParallelConfig")(distributed_executor_backend="ray")
    executor.vllm_config = types.SimpleNamespace(
        kv_transfer_config=None,
        ec_transfer_config=None,
        model_config=types.SimpleNamespace(runner_type="generate"),
    )
    executor._init_executor()
    return executor.workers, executor.parallel_config.placement_group


@known()
def ray_runtime_env_v2(caller: object) -> Any:
    """Return the ``runtime_env`` that RayExecutorV2 gives its workers.

    Args:
        caller: The ``runtime_env`` of the process that makes the engine.
    """
    config = find("ParallelConfig")(distributed_executor_backend="ray")
    config.ray_runtime_env = caller
    holder = types.SimpleNamespace(parallel_config=config)
    return find("RayExecutorV2")._build_runtime_env(holder)


def executor_of(llm: Any) -> Any:
    """Return the executor of an engine that runs in this process."""
    return llm.llm_engine.engine_core.engine_core.model_executor


def shut_down(llm: Any) -> None:
    """End the processes of an engine.

    From 0.32.0 on nothing else does when the interpreter ends: it waits for them, and they for it.
    """
    llm.llm_engine.engine_core.shutdown()


def queue_addresses(executor: Any) -> list[str]:
    """Return the addresses of an executor's message queues that other nodes reach."""
    queues = [getattr(executor, "rpc_broadcast_mq", None), *getattr(executor, "response_mqs", [])]
    return [queue.handle.remote_subscribe_addr for queue in queues if queue is not None]


def group_queue_address() -> str | None:
    """Return the address of the tensor-parallel group's queue in a worker; None if it has none."""
    queue = find("get_tp_group")().mq_broadcaster
    return queue and queue.handle and queue.handle.remote_subscribe_addr
