"""``vllm-nemo doctor --ray``: a row a node, and 0 only if all of them hold and agree."""

from __future__ import annotations

import re

import pytest

from tests.support import installed

from .conftest import ADDRESSES, Asked, Cluster, Environments

HEAD, SECOND, BARE, OFF, OTHER = ADDRESSES
VERSION = installed.OVERLAY_VERSION


def test_nodes_that_hold_and_agree(cluster: Cluster, environments: Environments) -> None:
    asked = Asked(cluster, environments.good, [])
    assert asked.status == 0, asked.text + asked.process.stderr
    assert asked.text.startswith(f"Interpreter of the workers: {environments.good.python}\n")
    rows = [line for line in asked.text.splitlines() if line.startswith("127")]
    for row, address in zip(rows, (HEAD, SECOND), strict=True):
        node, _, *cells = re.split("  +", row)
        assert node == address
        assert cells == ["vllm 0.29.0", VERSION, "yes", "3 of 3", "holds"]
    assert asked.text.endswith("\nThe overlay holds on 2 nodes, which agree.\n")


def test_it_asks_the_interpreter_that_workers_are_given(
    cluster: Cluster, environments: Environments
) -> None:
    bare = str(environments.bare.python)
    asked = Asked(cluster, environments.good, ["--json", "--py-executable", bare])
    assert asked.status == 1
    assert asked.data["agree"] is True
    assert {node["interpreter"] for node in asked.nodes.values()} == {bare}
    assert {node["overlay"] for node in asked.nodes.values()} == {None}


@pytest.fixture(scope="module")
def broken(cluster: Cluster, environments: Environments) -> Asked:
    """Ask a cluster with three more nodes, each broken in its own way."""
    cluster.start(BARE, environments.bare)
    cluster.start(OFF, environments.good, {"NRL_VLLM_OVERLAY": "off"})
    cluster.start(OTHER, environments.other)
    cluster.wait()
    return Asked(cluster, environments.good, ["--json"])


def test_it_fails_and_has_a_row_for_each(broken: Asked, environments: Environments) -> None:
    assert broken.status == 1
    assert (broken.data["holds"], broken.data["agree"]) == (False, False)
    assert list(broken.nodes) == [HEAD, SECOND, BARE, OFF, OTHER]
    rows = {
        name: (node["interpreter"], node["overlay"], node["active"], node["holds"])
        for name, node in broken.nodes.items()
    }
    good = str(environments.good.python)
    assert rows == {
        HEAD: (good, VERSION, True, True),
        SECOND: (good, VERSION, True, True),
        BARE: (str(environments.bare.python), None, False, False),
        OFF: (good, VERSION, False, False),
        OTHER: (str(environments.other.python), "0.29.0.2", True, True),
    }


def test_a_node_without_the_overlay_says_what_it_has(broken: Asked) -> None:
    node = broken.nodes[BARE]
    assert node["vllm"] == "vllm 0.29.0"
    assert "vllm-nemo is not installed" in node["problem"]
    assert node["differs"] == ["overlay"]


def test_a_node_that_is_switched_off(broken: Asked) -> None:
    node = broken.nodes[OFF]
    failed = [check["name"] for check in node["report"]["checks"] if check["state"] == "fail"]
    assert failed == ["switch"]
    assert node["differs"] == ["active", "patch first", "patch second", "patch fourth"]


def test_another_overlay_holds_by_itself_and_differs(broken: Asked) -> None:
    assert broken.nodes[OTHER]["differs"] == ["overlay", "manifest"]
    (overlay,) = [item for item in broken.data["differences"] if item["what"] == "overlay"]
    assert {item["value"]: item["nodes"] for item in overlay["values"]} == {
        VERSION: [HEAD, SECOND, OFF],
        "none": [BARE],
        "0.29.0.2": [OTHER],
    }


def test_a_node_that_does_not_answer(
    broken: Asked, cluster: Cluster, environments: Environments
) -> None:
    with cluster.frozen(OTHER):
        asked = Asked(cluster, environments.good, ["--timeout", "10"])
    assert asked.status == 1
    lines = asked.text.splitlines()
    (row,) = [number for number, line in enumerate(lines) if line.startswith(OTHER)]
    assert lines[row].endswith("does NOT hold")
    assert lines[row + 1] == "    no answer within 10 s"
    rows = [line for line in lines if line.startswith((HEAD, SECOND))]
    assert [line.endswith(" holds") for line in rows] == [True, True]
    assert max(len(line) for line in lines[: lines.index("")]) <= 100
    assert f"does NOT hold on 3 of 5 nodes: {BARE}, {OFF}, {OTHER}.\n" in asked.text
    assert "switch: NRL_VLLM_OVERLAY=off" in asked.text
    assert "vllm-nemo is not installed for the interpreter of its workers" in asked.text


def test_no_cluster(cluster: Cluster, environments: Environments) -> None:
    process = environments.good.run(
        "-m", "vllm_nemo", "doctor", "--ray", "127.0.0.9:1", env=cluster.env
    )
    assert process.returncode == 1
    assert "vllm-nemo: cannot join the Ray cluster at '127.0.0.9:1'" in process.stderr
