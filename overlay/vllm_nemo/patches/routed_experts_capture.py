"""Routed-experts capture for monolithic MoE kernels (patch ``routed-experts-capture``).

``LLM(..., enable_return_routed_experts=True)`` returns, for every token and MoE layer, the ids of
the experts that the token was routed to. vLLM binds a callback to the layer's router, and the
router calls it when it selects experts. A monolithic kernel (FlashInfer TRT-LLM, Triton MXFP4,
AITER, CPU) takes the router's logits and selects the experts itself. So the callback is never
called, and the returned ids are all zero (vllm-project/vllm#44116, #54730). Since 0.27.0 some
kernels report their own ids, and vLLM refuses to start with the others (vllm-project/vllm#44214).

The patch routes such a layer once more on the host, only to record the ids:

- The MoE runner calls ``capture_routing`` before a monolithic kernel.
- vLLM asks ``captures_in_router`` when it binds callbacks (0.27.0 and later). A kernel that reports
  its own ids keeps doing so; for any other the router is asked.
- ``must_stay_opaque`` keeps the MoE layer out of the compiled graph on platforms where the graph is
  traced through it before callbacks are bound. Since 0.31.0 no such platform returns ids.

When weights are reloaded into a quantized layer, vLLM makes a new kernel. vLLM 0.27.0 to 0.31.0
does not bind it again, and returns the ids of an older step (zeros in 0.27).
``keep_kernel_capture`` remembers the binding, and ``capture_routing`` restores it. Since 0.32.0 the
layer owns what the kernel reports to, and nothing is to be restored.

Two limits are vLLM's own. The ids come from the router's arithmetic; a kernel that rounds logits or
bias may decide a near-tie differently. Under ``VLLM_MOE_ROUTING_SIMULATION_STRATEGY`` the router
draws new random ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    CaptureFn = Callable[[torch.Tensor], None]


class Router(Protocol):
    """What this module uses of vLLM's ``BaseRouter`` (the same in 0.25.0 to 0.33.0)."""

    capture_fn: CaptureFn | None

    def _compute_routing(
        self,
        hidden_states: torch.Tensor,
        router_logits: torch.Tensor,
        indices_type: torch.dtype | None,
        *,
        input_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


class Kernel(Protocol):
    """What this module uses of vLLM's ``FusedMoEExpertsMonolithic`` (since 0.27.0).

    Callback and buffer are there up to 0.31.0, as ``keep_kernel_capture`` is used.
    """

    routing_replay_capture_fn: CaptureFn | None
    _routing_replay_buffer: torch.Tensor | None

    def supports_routing_replay_capture(self) -> bool:
        """Tell whether the kernel reports the ids that it routes to."""
        ...


class _KernelHolder(Protocol):
    fused_experts: Kernel


class _KernelWrapper(Protocol):
    impl: _KernelHolder


class _QuantMethod(Protocol):
    moe_kernel: _KernelWrapper


class Runner(Protocol):
    """What this module uses of vLLM's ``MoERunner``; not every router takes callbacks."""

    layer_name: str
    router: Router

    @property
    def _quant_method(self) -> _QuantMethod: ...


class _KernelCapture(NamedTuple):
    capture_fn: CaptureFn | None
    buffer: torch.Tensor | None


# Not `capture_fn`: vLLM takes a module with that attribute for one that captures by itself.
_KEPT = "_nrl_kernel_capture"


def capture_routing(
    runner: Runner,
    hidden_states: torch.Tensor,
    router_logits: torch.Tensor,
    input_ids: torch.Tensor | None,
) -> None:
    """Record the experts that the runner's router selects, if a callback is bound to it.

    Called before a monolithic kernel, with what the kernel is about to get. It computes nothing if
    no callback is bound. Every rank must call it: under sequence parallelism the callback gathers
    rows from all ranks. The callback gets the logical ids, (tokens, top_k), in the router's own
    integer dtype.

    It runs the routing alone, not ``select_experts``. That would also map the ids to physical
    experts and add to the expert load of EPLB, which the kernel does. No router of vLLM 0.25.0 to
    0.33.0 overrides ``select_experts`` or ``_select_experts``.

    Args:
        runner: The layer's MoE runner. A router without ``capture_fn`` is left alone.
        hidden_states: (tokens, hidden), any float dtype; not changed.
        router_logits: (tokens, experts), any float dtype; not changed.
        input_ids: (tokens,) token ids for routers that look experts up by token, or None.

    Raises:
        RuntimeError: if the router needs an operator that this platform does not have (on a CPU
            all routers but the grouped top-k one do), or if the kernel that was bound has been
            replaced by one that does not report its ids.
    """
    capture_fn: CaptureFn | None = getattr(runner.router, "capture_fn", None)
    if capture_fn is not None:
        try:
            _, expert_ids = runner.router._compute_routing(
                hidden_states, router_logits, None, input_ids=input_ids
            )
        except (AttributeError, NotImplementedError) as error:
            raise RuntimeError(
                f"vllm-nemo (patch routed-experts-capture): {type(runner.router).__name__} of "
                f"{runner.layer_name} cannot route on {hidden_states.device}, and the kernel there "
                f"does not report its ids: {error}. Start the engine without "
                "enable_return_routed_experts."
            ) from error
        capture_fn(expert_ids)
        return
    kept: _KernelCapture | None = getattr(runner, _KEPT, None)
    if kept is not None:
        _restore_kernel_capture(runner, kept)


def keep_kernel_capture(runner: Runner, kernel: Kernel) -> None:
    """Remember how a kernel that reports its ids was bound, for the kernel that replaces it.

    The buffer is remembered, too. It has to be the same for every kernel of the layer, because
    CUDA graphs that were captured before a reload go on writing to it.

    Args:
        runner: The layer's MoE runner, which keeps the binding.
        kernel: The layer's experts, bound by vLLM.
    """
    kept = _KernelCapture(kernel.routing_replay_capture_fn, kernel._routing_replay_buffer)
    setattr(runner, _KEPT, kept)


def _restore_kernel_capture(runner: Runner, kept: _KernelCapture) -> None:
    kernel = runner._quant_method.moe_kernel.impl.fused_experts
    if kernel.routing_replay_capture_fn is not None:
        return
    if not kernel.supports_routing_replay_capture():
        raise RuntimeError(
            f"vllm-nemo (patch routed-experts-capture): {runner.layer_name} started with a MoE "
            f"kernel that reports the ids it routes to, and now has a {type(kernel).__name__}, "
            "which does not. Its ids would be those of an older step. Reload weights in a form "
            "that keeps the kernel, or start the engine without enable_return_routed_experts."
        )
    # Not set_capture_fn(), which allocates another buffer.
    kernel.routing_replay_capture_fn = kept.capture_fn
    kernel._routing_replay_buffer = kept.buffer


def kernel_of(quant_method: object) -> object:
    """Return the experts of a layer, which know whether they report their ids.

    Since 0.31.0 vLLM looks them up later than it asks ``captures_in_router``.

    Args:
        quant_method: The layer's quantization method.

    Returns:
        vLLM's experts object; None where the method has none.
    """
    found: object = quant_method
    for name in ("moe_kernel", "impl", "fused_experts"):
        found = getattr(found, name, None)
    return found


def captures_in_router(
    router: object,
    router_type: type[object],
    kernel: object,
    kernel_type: type[Kernel],
) -> bool:
    """Tell whether the router of a monolithic layer has to capture the ids.

    It asks the kernel and not its class: a subclass may decline.

    Args:
        router: The layer's router.
        router_type: vLLM's ``BaseRouter``, whose instances take a callback.
        kernel: The layer's experts; None where the method has no kernel object.
        kernel_type: vLLM's ``FusedMoEExpertsMonolithic``, whose instances can be asked.

    Returns:
        True if the kernel does not report its ids and the router takes a callback. False leaves
        the layer to vLLM's branch for monolithic kernels: it binds to a kernel that reports its
        ids, and raises ValueError if neither side can capture.
    """
    reports_ids = isinstance(kernel, kernel_type) and kernel.supports_routing_replay_capture()
    return not reports_ids and isinstance(router, router_type)


def must_stay_opaque() -> bool:
    """Tell whether the MoE layer that is being built must be one opaque operator when compiled.

    On CPU and TPU vLLM lets the compiler trace through the layer. That happens before callbacks are
    bound, and the guards are dropped, so the graph would never capture: all zeros, with no error.
    On every other platform the layer is one operator. The key of vLLM's compile cache has the
    option in it, so a graph from a run without the option is not used.

    To be called within ``set_current_vllm_config``, as layers are built; up to 0.30.0, where the
    option is one of the model's.

    Returns:
        Whether the engine returns routed experts.
    """
    from vllm.config import get_current_vllm_config

    model_config = get_current_vllm_config().model_config
    return model_config is not None and bool(model_config.enable_return_routed_experts)
