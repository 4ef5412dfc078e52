"""Routed-experts capture for monolithic MoE kernels (patch ``routed-experts-capture``).

``LLM(..., enable_return_routed_experts=True)`` returns, for every token and MoE layer, the ids of
the experts that the token was routed to. vLLM records them in a callback that it binds to the
layer's router, and the router calls it when it selects experts. A monolithic kernel (FlashInfer
TRT-LLM, Triton MXFP4, AITER, CPU) takes the router's logits instead and selects experts inside, so
the callback is never called and the returned ids are all zero (vllm-project/vllm#44116, #54730).
vLLM 0.27.0 taught some kernels to report their own ids and refuses to start with the others
(vllm-project/vllm#44214).

The patch routes such a layer once more on the host, only to record the ids:

* :func:`capture_routing` is called by the MoE runner before a monolithic kernel;
* :func:`captures_in_router` is asked when callbacks are bound (0.27.0 and later): a kernel that
  reports its own ids keeps doing so, any other falls back to the router;
* :func:`must_stay_opaque` keeps the MoE layer out of the compiled graph on platforms where the
  graph is traced through it, before callbacks are bound.

A kernel that reports its ids is made anew whenever weights are reloaded into a quantized layer, and
vLLM 0.27.0 to 0.31.0 does not bind it again: the ids of an older step are then returned (zeros in
0.27). :func:`keep_kernel_capture` remembers the binding, and :func:`capture_routing` restores it.

Limits, all of them vLLM's own: the ids are those of the router's arithmetic, which may resolve a
near-tie differently from a kernel that rounds logits or bias; under
``VLLM_MOE_ROUTING_SIMULATION_STRATEGY`` the router draws new random ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    CaptureFn = Callable[[torch.Tensor], None]


class Router(Protocol):
    """What this module uses of vLLM's ``BaseRouter`` (the same in 0.25.0 to 0.29.0)."""

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
    """What this module uses of vLLM's ``FusedMoEExpertsMonolithic`` (since 0.27.0)."""

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


# Not `capture_fn`: vLLM takes any module with that attribute for one that captures by itself.
_KEPT = "_nrl_kernel_capture"


def capture_routing(
    runner: Runner,
    hidden_states: torch.Tensor,
    router_logits: torch.Tensor,
    input_ids: torch.Tensor | None,
) -> None:
    """Record the experts that the runner's router selects, if a capture callback is bound to it.

    Called in front of a monolithic kernel, with what the kernel is about to be given. Nothing is
    computed when no callback is bound. Every rank must call it alike: under sequence parallelism
    the callback gathers rows from all ranks.

    Only the routing itself is run, not ``select_experts``: that one also maps ids to physical
    experts and adds to the expert load that EPLB balances by, which is the kernel's to record. No
    router of vLLM 0.25.0 to 0.29.0 overrides ``select_experts`` or ``_select_experts``.

    Args:
        runner: The layer's MoE runner. A router without ``capture_fn`` is left alone.
        hidden_states: ``(tokens, hidden)``, any float dtype; read only.
        router_logits: ``(tokens, experts)``, any float dtype; read only.
        input_ids: ``(tokens,)`` token ids, for routers that look experts up by token, or None.

    The callback gets logical expert ids ``(tokens, top_k)`` of the router's own integer dtype.

    Raises:
        RuntimeError: The router lacks an operator on this platform (most routers do on a CPU; the
            grouped top-k one does not), or the kernel that was bound has been made anew and no
            longer reports its ids.
    """
    capture_fn: CaptureFn | None = getattr(runner.router, "capture_fn", None)
    if capture_fn is not None:
        try:
            _, expert_ids = runner.router._compute_routing(
                hidden_states, router_logits, None, input_ids=input_ids
            )
        except (AttributeError, NotImplementedError) as error:
            raise RuntimeError(
                f"routed-experts-capture: {type(runner.router).__name__} of {runner.layer_name} "
                f"cannot route on {hidden_states.device}, where the kernel routes by itself and "
                f"reports nothing: {error}. Start the engine without enable_return_routed_experts."
            ) from error
        capture_fn(expert_ids)
        return
    kept: _KernelCapture | None = getattr(runner, _KEPT, None)
    if kept is not None:
        _restore_kernel_capture(runner, kept)


def keep_kernel_capture(runner: Runner, kernel: Kernel) -> None:
    """Remember how a kernel that reports its ids was bound, so that its successor can be.

    The buffer is remembered with the callback, and has to be the same for every kernel of the
    layer: CUDA graphs captured before a reload go on writing to it.
    """
    kept = _KernelCapture(kernel.routing_replay_capture_fn, kernel._routing_replay_buffer)
    setattr(runner, _KEPT, kept)


def _restore_kernel_capture(runner: Runner, kept: _KernelCapture) -> None:
    kernel = runner._quant_method.moe_kernel.impl.fused_experts
    if kernel.routing_replay_capture_fn is not None:
        return
    if not kernel.supports_routing_replay_capture():
        raise RuntimeError(
            f"routed-experts-capture: {runner.layer_name} was bound to a MoE kernel that reports "
            f"the experts it routes to, and now has a {type(kernel).__name__}, which does not. "
            "Its routed experts would be those of an older step. Reload weights into the kernel "
            "that the engine started with, or start it without enable_return_routed_experts."
        )
    # Not set_capture_fn(), which allocates another buffer.
    kernel.routing_replay_capture_fn = kept.capture_fn
    kernel._routing_replay_buffer = kept.buffer


def captures_in_router(
    router: object,
    router_type: type[object],
    kernel: object,
    kernel_type: type[Kernel],
) -> bool:
    """Tell whether a monolithic layer's experts must be captured in its router.

    True when the kernel does not report the ids it routes to and the router can. False leaves
    vLLM's own branch for monolithic kernels in charge: it binds to a kernel that reports its ids,
    and raises its ``ValueError`` when neither side can capture.

    The kernel that is loaded is asked, not its class: a subclass may decline.

    Args:
        router: The layer's router.
        router_type: vLLM's ``BaseRouter``, whose instances take a capture callback.
        kernel: The layer's experts, or None where the method has no kernel object.
        kernel_type: vLLM's ``FusedMoEExpertsMonolithic``, whose instances can be asked.
    """
    reports_ids = isinstance(kernel, kernel_type) and kernel.supports_routing_replay_capture()
    return not reports_ids and isinstance(router, router_type)


def must_stay_opaque() -> bool:
    """Tell whether a MoE layer under construction must stay one opaque operator when compiled.

    On CPU and TPU vLLM lets the compiler trace through the layer. It does so before capture
    callbacks are bound, and drops the guards, so the graph would never capture: all zeros, with no
    error. Where routed experts are to be returned, the layer has to be the operator that it is on
    every other platform. vLLM's compile cache is keyed by the option, so that a graph from a run
    without it is not picked up.

    Called within ``set_current_vllm_config``, as the construction of every layer is.
    """
    from vllm.config import get_current_vllm_config

    model_config = get_current_vllm_config().model_config
    return model_config is not None and bool(model_config.enable_return_routed_experts)
