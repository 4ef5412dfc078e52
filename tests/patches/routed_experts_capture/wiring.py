"""Bind vLLM's own layers and kernels to a recorder, one kind after the other, and let them run.

No engine and no weights: the MoE runner, the binder, the router's and the kernel's base class are
vLLM's; what they would compute is fixed. Covers kernels that a CPU does not have.

Result: for each case its events, in order, or the error: ``["kernel", n]`` the kernel ran and
routed to expert n, ``["router", n]`` so did the router, ``["load"]`` the router counted expert load
for EPLB, ``["captured", layer, n]`` an id was captured. A case that the release does not know is
absent.
"""

# ruff: noqa: ARG002, ARG005  (signatures are vLLM's)

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import torch

from tests.support import vllm_internals

KERNEL_EXPERT = 10
ROUTER_EXPERT = 5
LAYER = 2
TOKENS = 3
REPORTING = hasattr(vllm_internals.FusedMoEExpertsMonolithic, "supports_routing_replay_capture")

events: list[list] = []


def only(ids: torch.Tensor) -> int:
    (expert,) = set(ids.flatten().tolist())
    return expert


class Kernel(vllm_internals.FusedMoEExpertsMonolithic):
    """Routes every token to one expert; ``run_kernel`` reports it as vLLM's kernels do."""

    def __init__(self, *, reports: bool, expert: int = KERNEL_EXPERT) -> None:
        self.reports = reports
        self.expert = expert
        self.moe_config = SimpleNamespace(
            max_num_tokens=TOKENS,
            experts_per_token=1,
            device=torch.device("cpu"),
            use_ep=False,
            dp_size=1,
        )

    def supports_routing_replay_capture(self) -> bool:
        return self.reports

    def apply(self, hidden_states: torch.Tensor) -> torch.Tensor:
        events.append(["kernel", self.expert])
        return hidden_states


Kernel.__abstractmethods__ = frozenset()  # none of them is of interest here


class Router(vllm_internals.BaseRouter):
    def __init__(self) -> None:
        super().__init__(top_k=1, global_num_experts=16)

    @property
    def routing_method_type(self):
        return vllm_internals.RoutingMethodType.TopK

    def _compute_routing(self, hidden_states, router_logits, indices_type, *, input_ids=None):
        events.append(["router", ROUTER_EXPERT])
        ids = torch.full((len(hidden_states), 1), ROUTER_EXPERT, dtype=torch.int32)
        return torch.ones(ids.shape), ids

    def _apply_eplb_mapping(self, topk_ids: torch.Tensor) -> torch.Tensor:
        events.append(["load"])
        return topk_ids


class OtherRouter(vllm_internals.FusedMoERouter):
    """A router that takes no callback."""


OtherRouter.__abstractmethods__ = frozenset()


class Runner(vllm_internals.MoERunner):
    def __init__(
        self, router: vllm_internals.FusedMoERouter, kernel: Kernel | None, *, monolithic: bool
    ) -> None:
        torch.nn.Module.__init__(self)
        self.layer_name = f"model.layers.{LAYER}.mlp.experts"
        self.router = router
        self._shared_experts = None
        self.routed_experts = SimpleNamespace(
            quant_method=SimpleNamespace(is_monolithic=monolithic, topk_indices_dtype=None),
            forward_monolithic=lambda x, router_logits, input_ids: self.monolithic(x),
            forward_modular=lambda x, topk_ids, **others: x,
            routing_sink=None,
        )
        self.hold(kernel)

    def hold(self, kernel: Kernel | None) -> None:
        wrapper = SimpleNamespace(impl=SimpleNamespace(fused_experts=kernel))
        self.routed_experts.quant_method.moe_kernel = None if kernel is None else wrapper

    def monolithic(self, x: torch.Tensor) -> torch.Tensor:
        wrapper = self.routed_experts.quant_method.moe_kernel
        if wrapper is None:
            events.append(["kernel", KERNEL_EXPERT])
            return x
        return vllm_internals.run_kernel(self, wrapper.impl.fused_experts, x)

    def step(self) -> None:
        vllm_internals.run_moe_layer(self, torch.zeros(TOKENS, 8), torch.zeros(TOKENS, 16))


def bind(runner: Runner) -> None:
    capturer = SimpleNamespace(
        capture=lambda layer, ids: events.append(["captured", layer, only(ids)])
    )
    vllm_internals.bind_capture(torch.nn.ModuleList([runner]), runner, capturer)


def run(runner: Runner, *anew: Kernel, bound: bool = True) -> list:
    """Bind and run once; then once with each kernel made anew."""
    events.clear()
    try:
        if bound:
            bind(runner)
        runner.step()
        for kernel in anew:
            runner.hold(kernel)
            runner.step()
    except (RuntimeError, ValueError) as error:
        return [*events, f"{type(error).__name__}: {error}"]
    return list(events)


def main() -> None:
    result = {
        "unbound": run(Runner(Router(), None, monolithic=True), bound=False),
        "no kernel": run(Runner(Router(), None, monolithic=True)),
        "neither": run(Runner(OtherRouter(), None, monolithic=True)),
        "modular": run(Runner(Router(), None, monolithic=False)),
    }
    if REPORTING:
        result |= {
            "silent kernel": run(Runner(Router(), Kernel(reports=False), monolithic=True)),
            "reporting kernel": run(Runner(Router(), Kernel(reports=True), monolithic=True)),
            "made anew": run(
                Runner(Router(), Kernel(reports=True), monolithic=True),
                Kernel(reports=True, expert=11),
                Kernel(reports=True, expert=12),
            ),
            "silent anew": run(
                Runner(Router(), Kernel(reports=True), monolithic=True), Kernel(reports=False)
            ),
            "silent kernel anew": run(
                Runner(Router(), Kernel(reports=False), monolithic=True), Kernel(reports=False)
            ),
        }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
