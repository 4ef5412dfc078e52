"""Patch ``routed-experts-capture``: its logic, with fakes in the place of vLLM and torch."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from vllm_nemo.patches.routed_experts_capture import (
    capture_routing,
    captures_in_router,
    keep_kernel_capture,
    kernel_of,
    must_stay_opaque,
)


class Router:
    """Routes to fixed ids, and records its calls. ``select_experts`` must not be called."""

    def __init__(self, capture_fn=None):
        self.capture_fn = capture_fn
        self.asked = []

    def _compute_routing(self, hidden_states, router_logits, indices_type, *, input_ids=None):
        self.asked.append((hidden_states, router_logits, indices_type, input_ids))
        return "weights", "logical ids"


class Kernel:
    """A monolithic kernel that does or does not report its ids."""

    def __init__(self, *, reports):
        self.reports = reports
        self.routing_replay_capture_fn = None
        self._routing_replay_buffer = None

    def supports_routing_replay_capture(self):
        return self.reports

    def set_capture_fn(self, capture_fn):
        self.routing_replay_capture_fn = capture_fn
        self._routing_replay_buffer = object()


class Runner:
    def __init__(self, router, kernel=None):
        self.layer_name = "model.layers.3.mlp.experts"
        self.router = router
        self.hold(kernel)

    def hold(self, kernel):
        impl = SimpleNamespace(fused_experts=kernel)
        self._quant_method = SimpleNamespace(moe_kernel=SimpleNamespace(impl=impl))

    def step(self):
        return capture_routing(self, "hidden", "logits", "tokens")


def test_router_that_cannot_be_bound_is_left_alone():
    Runner(SimpleNamespace()).step()


def test_failure_to_capture_is_not_hidden():
    def refuse(ids):
        raise IndexError("layer 9 exceeds the buffer")

    with pytest.raises(IndexError, match="layer 9"):
        Runner(Router(refuse)).step()


def test_router_without_an_operator_on_this_platform_is_named():
    router = Router(pytest.fail)
    operators = SimpleNamespace()
    router._compute_routing = lambda *_, **__: operators.topk_softmax
    with pytest.raises(RuntimeError, match=r"Router of model\.layers\.3\.\S* cannot route on cpu"):
        capture_routing(Runner(router), SimpleNamespace(device="cpu"), "logits", None)


class Decoy:
    """Reports ids, but is no monolithic kernel."""

    def supports_routing_replay_capture(self):
        return True


@pytest.mark.parametrize(
    ("router", "kernel", "in_router"),
    [
        (Router(), Kernel(reports=True), False),  # vLLM binds to the kernel
        (Router(), Kernel(reports=False), True),  # the fallback
        (Router(), None, True),  # the fallback, a method without a kernel object
        (Router(), Decoy(), True),  # the fallback, a kernel of another family
        (object(), Kernel(reports=True), False),  # vLLM binds to the kernel
        (object(), Kernel(reports=False), False),  # vLLM raises
        (object(), None, False),  # vLLM raises
    ],
)
def test_which_side_captures(router, kernel, in_router):
    assert captures_in_router(router, Router, kernel, Kernel) is in_router


def test_the_kernel_of_a_method_is_found():
    kernel = Kernel(reports=True)
    assert kernel_of(Runner(Router(), kernel)._quant_method) is kernel


@pytest.mark.parametrize("method", [None, SimpleNamespace(), SimpleNamespace(moe_kernel=None)])
def test_a_method_without_a_kernel_has_none(method):
    assert kernel_of(method) is None


def test_the_instance_is_asked_not_its_class():
    kernel = Kernel(reports=True)
    kernel.supports_routing_replay_capture = lambda: False
    assert captures_in_router(Router(), Router, kernel, Kernel)


def bound_to_kernel():
    kernel = Kernel(reports=True)
    kernel.set_capture_fn(object())
    runner = Runner(Router(), kernel)
    keep_kernel_capture(runner, kernel)
    return runner, kernel


def test_kernel_that_is_still_bound_is_left_alone():
    runner, _ = bound_to_kernel()
    runner.step()
    other = Kernel(reports=True)
    other.set_capture_fn(object())  # vLLM bound it by itself
    bound = other.routing_replay_capture_fn, other._routing_replay_buffer
    runner.hold(other)
    runner.step()
    assert (other.routing_replay_capture_fn, other._routing_replay_buffer) == bound


def test_runner_does_not_pass_for_a_layer_that_captures_by_itself():
    runner, _ = bound_to_kernel()
    assert not hasattr(runner, "capture_fn")


@pytest.mark.parametrize(
    ("model_config", "opaque"),
    [
        (None, False),
        (SimpleNamespace(enable_return_routed_experts=False), False),
        (SimpleNamespace(enable_return_routed_experts=True), True),
    ],
)
def test_layer_stays_opaque_where_experts_are_returned(monkeypatch, model_config, opaque):
    pretend_current(monkeypatch, model_config)
    assert must_stay_opaque() is opaque


def test_a_release_that_moved_the_option_is_noticed(monkeypatch):
    pretend_current(monkeypatch, SimpleNamespace())
    with pytest.raises(AttributeError, match="enable_return_routed_experts"):
        must_stay_opaque()


def pretend_current(monkeypatch, model_config):
    config = ModuleType("vllm.config")
    config.get_current_vllm_config = lambda: SimpleNamespace(model_config=model_config)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.config", config)
