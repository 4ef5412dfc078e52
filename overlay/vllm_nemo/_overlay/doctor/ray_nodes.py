"""The doctor's question, asked on every node of a running Ray cluster.

The one module that imports Ray, and only when it is asked to.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_nemo._overlay import outcomes
from vllm_nemo._overlay.doctor.report import FAIL
from vllm_nemo._overlay.errors import OverlayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NONE = "none"
# Seconds for a connection to a cluster's head.
_CONNECT_TIMEOUT = 10


def probe() -> str:
    """Examine the interpreter of the Ray worker that this runs in.

    It is sent to the nodes by value, since they may lack ``vllm_nemo`` or have another one. So it
    uses nothing of this module, and its answer says what it could not do.

    Returns:
        A JSON object: the worker's interpreter, host and process, and ``report``, what the doctor
        says there. ``report`` is null without ``vllm_nemo``; ``error`` says why there is none.
    """
    import json
    import os
    import socket
    import sys
    from importlib import metadata

    answer: dict[str, Any] = {
        "interpreter": sys.executable,
        "python": ".".join(map(str, sys.version_info[:3])),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    try:
        import vllm_nemo

        answer["package"] = vllm_nemo.__file__
    except ModuleNotFoundError:
        answer["report"] = None
        names = metadata.packages_distributions().get("vllm", [])
        answer["vllm"] = [f"{name} {metadata.version(name)}" for name in sorted(set(names))]
        return json.dumps(answer)
    except Exception as error:  # noqa: BLE001 (a damaged installation is an answer, too)
        answer["error"] = f"vllm_nemo cannot be imported: {error!r}"
        return json.dumps(answer)
    try:
        from vllm_nemo._overlay.doctor.examine import examine

        answer["report"] = examine().as_json()
    except Exception as error:  # noqa: BLE001 (its doctor may be another one than ours)
        answer["error"] = f"the vllm-nemo at {answer['package']} cannot be asked: {error!r}"
    return json.dumps(answer)


@dataclass
class Node:
    """One node of a cluster, and what it answered.

    Attributes:
        name: Its address, with a part of its id where several nodes have that address.
        identity: Its id.
        answer: What ``probe`` returned there, empty if nothing came back.
        problem: Why there is no report of its overlay, None if there is one.
        differs: What is not there as on most nodes.
    """

    name: str
    identity: str
    answer: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    differs: tuple[str, ...] = ()

    @property
    def report(self) -> Mapping[str, Any]:
        """What ``vllm-nemo doctor --json`` says there, empty if there is none."""
        return self.answer.get("report") or {}

    @property
    def holds(self) -> bool:
        """Whether the node has answered that its overlay holds."""
        return self.problem is None and self.report.get("holds") is True

    @property
    def active(self) -> bool:
        """Whether workers there are served the overlay's modules."""
        return self.report.get("active", self.holds) is True

    @property
    def vllm(self) -> str:
        """The distributions that own vLLM there, or its version where none does."""
        found = self.report.get("vllm") or {}
        owners = self.answer.get("vllm") or found.get("distributions")
        return ", ".join(owners) if owners else found.get("version") or NONE

    @property
    def overlay(self) -> str:
        """The version of the overlay there."""
        return self.report.get("overlay") or NONE

    @property
    def patches(self) -> tuple[int, int] | None:
        """How many patches are in effect there, of how many that are needed; None if unknown."""
        states = [patch["state"] for patch in self.report.get("patches", [])]
        if not states:
            return None
        needed = [state for state in states if state != outcomes.UNNEEDED]
        return len([state for state in needed if state in outcomes.IN_EFFECT]), len(needed)

    @property
    def facts(self) -> dict[str, str]:
        """Everything that must be the same on all nodes; empty for one that has not answered."""
        if "python" not in self.answer:
            return {}
        facts = {"Python": self.answer["python"], "vLLM": self.vllm, "overlay": self.overlay}
        if self.report:
            facts["active"] = "yes" if self.active else "no"
            facts["manifest"] = (self.report.get("manifest") or NONE)[:12]
            for patch in self.report.get("patches", []):
                facts[f"patch {patch['id']}"] = f"{patch['state']}, {patch['switch']}"
        return facts

    @property
    def details(self) -> list[str]:
        """What does not hold there, one text each."""
        if self.problem is not None:
            return [self.problem]
        failed = [check for check in self.report.get("checks", []) if check["state"] == FAIL]
        return [f"{check['name']}: {check['detail']}" for check in failed]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON data, with the node's whole report."""
        return {
            "node": self.name,
            "id": self.identity,
            "host": self.answer.get("host"),
            "interpreter": self.answer.get("interpreter"),
            "python": self.answer.get("python"),
            "vllm": self.vllm if self.answer else None,
            "overlay": self.report.get("overlay"),
            "active": self.active,
            "holds": self.holds,
            "problem": self.problem,
            "differs": list(self.differs),
            "report": self.report or None,
        }


@dataclass(frozen=True)
class Difference:
    """Something that must be the same on all nodes, and is not.

    Attributes:
        what: What differs.
        values: The names of the nodes that have each value.
    """

    what: str
    values: Mapping[str, tuple[str, ...]]


@dataclass
class Cluster:
    """The nodes of a cluster and what differs between them.

    Attributes:
        nodes: The nodes, in the order of their addresses. Each one's ``differs`` is filled in.
        differences: What must be the same on all nodes and is not.
    """

    nodes: tuple[Node, ...]
    differences: tuple[Difference, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Compare the nodes."""
        facts = [(node, node.facts) for node in self.nodes]
        differences = []
        for what in dict.fromkeys(name for _, found in facts for name in found):
            values = [(node, found[what]) for node, found in facts if what in found]
            # The first of equally common ones: the nodes come in a fixed order.
            usual, count = Counter(value for _, value in values).most_common(1)[0]
            if count == len(values):
                continue
            by_value: dict[str, tuple[str, ...]] = {}
            for node, value in values:
                by_value[value] = (*by_value.get(value, ()), node.name)
                if value != usual:
                    node.differs = (*node.differs, what)
            differences.append(Difference(what, by_value))
        self.differences = tuple(differences)

    @property
    def holds(self) -> bool:
        """Whether all nodes have answered, hold and agree."""
        return bool(self.nodes) and not self.differences and all(n.holds for n in self.nodes)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        return {
            "holds": self.holds,
            "agree": not self.differences,
            "nodes": [node.as_json() for node in self.nodes],
            "differences": [
                {
                    "what": difference.what,
                    "values": [
                        {"value": value, "nodes": list(nodes)}
                        for value, nodes in difference.values.items()
                    ],
                }
                for difference in self.differences
            ],
        }


def ask(address: str, *, timeout: float, py_executable: str | None = None) -> Cluster:
    """Ask every live node of a Ray cluster what the doctor says there.

    One task, pinned to the node and needing no resources, runs in a worker that Ray starts as any
    other. All nodes are asked at once.

    Args:
        address: Of the cluster, as for ``ray.init``; "auto" for RAY_ADDRESS or the local one.
        timeout: Seconds for the answers. A node without one by then gets a row that says so.
        py_executable: The interpreter or command that workers are to be started with, as Ray's
            ``runtime_env`` has it; None for Ray's own choice.

    Returns:
        The nodes, compared with each other.

    Raises:
        OverlayError: if Ray is not installed here, or there is no cluster to join.
    """
    try:
        import ray
    except ImportError as error:
        raise OverlayError(
            f"--ray needs Ray, and {sys.executable} has none ({error}). Run it with an "
            "interpreter of a node of the cluster, or install the cluster's release of Ray."
        ) from error
    _check_port(address)
    with _in_empty_directory():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise _no_cluster(address, error) from error
        try:
            return Cluster(tuple(_ask_nodes(timeout, py_executable)))
        finally:
            ray.shutdown()


def _no_cluster(address: str, error: Exception) -> OverlayError:
    return OverlayError(
        f"cannot join the Ray cluster at {address!r}: {error}. Give the address of its head "
        "(`ray status` on a node says whether it runs)."
    )


def _check_port(address: str) -> None:
    """Raise OverlayError at once where no server listens; Ray would go on trying for minutes."""
    host, separator, port = address.rpartition(":")
    # Ray has other forms of an address: "auto", a path, a URL.
    if not separator or not port.isdigit() or "/" in host:
        return
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT)
        connection.close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


@contextlib.contextmanager
def _in_empty_directory() -> Iterator[None]:
    """Leave the current directory, which Ray puts on its workers' ``sys.path``.

    In a checkout of vllm-nemo, for instance, every worker would import the package from there.
    """
    before = os.getcwd()  # noqa: PTH109 (a string, to return to)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            yield
        finally:
            os.chdir(before)


def _ask_nodes(timeout: float, py_executable: str | None) -> Iterator[Node]:
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    alive.sort(key=lambda node: (address_key(node["NodeManagerAddress"]), node["NodeID"]))
    addresses = Counter(node["NodeManagerAddress"] for node in alive)
    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0}
    if py_executable is not None:
        options["runtime_env"] = {"py_executable": py_executable}
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        remote = ray.remote(**options)(probe)
        asked = {
            node["NodeID"]: remote.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in alive
        }
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    answers = list(asked.values())
    ready, _ = ray.wait(answers, num_returns=len(answers), timeout=timeout)
    for node in alive:
        address, identity = node["NodeManagerAddress"], node["NodeID"]
        name = address if addresses[address] == 1 else f"{address} ({identity[:8]})"
        answer = asked[identity]
        if answer in ready:
            yield _answered(name, identity, answer)
        else:
            yield Node(name, identity, problem=f"no answer within {timeout:g} s")


def _answered(name: str, identity: str, reference: object) -> Node:
    import ray

    try:
        answer = json.loads(ray.get(reference))
    except Exception as error:  # noqa: BLE001 (Ray has many, and each is the answer of this node)
        text = str(error).strip() or repr(error)
        return Node(name, identity, problem=f"could not be asked: {text}")
    problem = answer.get("error")
    if problem is None and not answer.get("report"):
        problem = "vllm-nemo is not installed for the interpreter of its workers"
    return Node(name, identity, answer, problem)


def address_key(address: str) -> list[tuple[int, str]]:
    """Return the key that sorts addresses by their numbers.

    Args:
        address: The address of a node, for instance ``10.0.0.9``.

    Returns:
        A key by which ``10.0.0.9`` comes before ``10.0.0.10``.
    """
    parts = address.replace(":", ".").split(".")
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
