"""Nodes of a cluster compared: what differs, and whether all hold. Ray itself: tests/ray."""

from __future__ import annotations

import builtins
import json
import sys
import types
from typing import Any

from vllm_nemo._overlay.doctor import ray_nodes
from vllm_nemo._overlay.doctor.ray_nodes import Cluster, Node


def _node(name: str, python: str = "3.12.3", overlay: str = "0.29.0.1", **report: Any) -> Node:
    data = {
        "holds": True,
        "active": True,
        "overlay": overlay,
        "manifest": "f" * 64,
        "vllm": {"version": "0.29.0", "distributions": ["vllm 0.29.0"]},
        "checks": [],
        "patches": [{"id": "head", "state": "served", "switch": "NRL_HEAD (not set)"}],
    }
    answer = {"python": python, "interpreter": "/python", "report": data | report}
    return Node(name, name, answer)


def test_nodes_that_agree() -> None:
    cluster = Cluster((_node("a"), _node("b")))
    assert cluster.holds
    assert cluster.differences == ()
    assert [node.vllm for node in cluster.nodes] == ["vllm 0.29.0"] * 2


def test_the_most_common_answer_is_the_usual_one() -> None:
    nodes = (_node("a", overlay="0.29.0.2"), _node("b"), _node("c"))
    cluster = Cluster(nodes)
    assert not cluster.holds
    assert [node.differs for node in nodes] == [("overlay",), (), ()]
    (difference,) = cluster.differences
    assert difference.values == {"0.29.0.2": ("a",), "0.29.0.1": ("b", "c")}


def test_of_two_nodes_the_first_is_the_usual_one() -> None:
    nodes = (_node("a"), _node("b", python="3.11.9"))
    assert not Cluster(nodes).holds
    assert [node.differs for node in nodes] == [(), ("Python",)]


def test_switches_must_agree() -> None:
    switched = [{"id": "head", "state": "served", "switch": "NRL_HEAD=1"}]
    cluster = Cluster((_node("a"), _node("b", patches=switched)))
    assert not cluster.holds
    assert [difference.what for difference in cluster.differences] == ["patch head"]


def test_equal_versions_with_other_contents_differ() -> None:
    cluster = Cluster((_node("a"), _node("b", manifest="0" * 64)))
    assert [difference.what for difference in cluster.differences] == ["manifest"]


def test_a_node_that_did_not_answer_fails_and_is_not_compared() -> None:
    cluster = Cluster((_node("a"), Node("b", "b", problem="no answer within 1 s")))
    assert not cluster.holds
    assert cluster.differences == ()
    assert cluster.as_json()["nodes"][1]["problem"] == "no answer within 1 s"


def test_nodes_that_agree_on_being_broken_do_not_hold() -> None:
    cluster = Cluster((_node("a", holds=False), _node("b", holds=False)))
    assert (cluster.holds, cluster.differences) == (False, ())


def test_no_nodes_do_not_hold() -> None:
    assert not Cluster(()).holds


def test_a_node_without_the_overlay_may_have_the_same_vllm() -> None:
    answer = {"python": "3.12.3", "interpreter": "/python", "vllm": ["vllm 0.29.0"], "report": None}
    cluster = Cluster((_node("a"), Node("b", "b", answer, problem="vllm-nemo is not installed")))
    assert [difference.what for difference in cluster.differences] == ["overlay"]
    assert Node("c", "c", {"python": "3.12.3", "vllm": [], "report": None}).vllm == "none"


def test_an_older_doctor_is_understood() -> None:
    node = _node("a")
    del node.answer["report"]["active"]
    del node.answer["report"]["manifest"]
    assert node.active
    assert Cluster((node,)).holds


def test_addresses_are_in_the_order_of_their_numbers() -> None:
    addresses = ["10.0.0.10", "10.0.0.9", "fd00::2", "10.0.0.2", "host"]
    ordered = sorted(addresses, key=ray_nodes.address_key)
    assert ordered.index("10.0.0.2") < ordered.index("10.0.0.9") < ordered.index("10.0.0.10")


def test_the_probe_uses_nothing_of_its_module() -> None:
    # Nodes get its code alone, as here.
    alone = types.FunctionType(ray_nodes.probe.__code__, {"__builtins__": builtins})
    answer = json.loads(alone())
    assert answer["interpreter"] == sys.executable
    # A source tree, in this interpreter.
    assert (answer["report"]["holds"], answer["report"]["overlay"]) == (False, None)
