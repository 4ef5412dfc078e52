"""``vllm-nemo doctor``: whether this interpreter, or every node of a cluster, runs the overlay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo._overlay.commands.output import print_json, print_table, status_of
from vllm_nemo._overlay.tables import Row, fits

if TYPE_CHECKING:
    import argparse

    from vllm_nemo._overlay.doctor.ray_nodes import Cluster, Node
    from vllm_nemo._overlay.doctor.report import Report

HELP = "tell whether this interpreter runs the overlay, and if not, why"

# Seconds. A worker starts in a few, but a busy node or an interpreter on a network file system
# takes longer.
_TIMEOUT = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="ask every node of a running Ray cluster instead, and compare the answers "
        "(default: RAY_ADDRESS, or the cluster of this machine)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"with --ray: how long to wait for the nodes (default: {_TIMEOUT:g})",
    )
    parser.add_argument(
        "--py-executable",
        metavar="COMMAND",
        help="with --ray: ask workers started with this interpreter (Ray's py_executable), as "
        "NeMo-RL starts its own, and not those that Ray starts by itself",
    )


def run(options: argparse.Namespace) -> int:
    """Ask this interpreter, or with ``--ray`` every node of a cluster.

    Returns:
        The exit status.

    Raises:
        OverlayError: if there is no Ray, or no cluster to join.
    """
    if options.ray is None:
        if options.timeout is not None or options.py_executable is not None:
            options.parser.error("--timeout and --py-executable go with --ray")
        from vllm_nemo._overlay.doctor.examine import examine

        report = examine()
        _show(options, report)
        return status_of(report.holds)
    from vllm_nemo._overlay.doctor import ray_nodes

    timeout = _TIMEOUT if options.timeout is None else options.timeout
    cluster = ray_nodes.ask(options.ray, timeout=timeout, py_executable=options.py_executable)
    _show_cluster(options, cluster)
    return status_of(cluster.holds)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _show(options: argparse.Namespace, report: Report) -> None:
    if options.json:
        print_json(report.as_json())
        return
    from vllm_nemo._overlay.doctor.report import FAIL

    rows = []
    beside = [max(len(check.name) for check in report.checks), len("state")]
    for check in report.checks:
        if fits(check.detail, beside):
            rows.append(Row((check.name, check.state, check.detail)))
        else:
            rows.append(Row((check.name, check.state, ""), [check.detail]))
    print_table(("check", "state", "detail"), rows)
    if report.patches:
        print()
        patches = [
            Row((item.patch.id, item.state, item.switch), [item.patch.title])
            for item in report.patches
        ]
        print_table(("patch", "state", "switch"), patches)
    failed = [check.name for check in report.checks if check.state == FAIL]
    print()
    print(f"The overlay does NOT hold: {', '.join(failed)}." if failed else "The overlay holds.")


def _show_cluster(options: argparse.Namespace, cluster: Cluster) -> None:
    if options.json:
        print_json(cluster.as_json())
        return
    interpreters = {node.answer["interpreter"] for node in cluster.nodes if node.answer}
    if len(interpreters) == 1:
        print(f"Interpreter of the workers: {interpreters.pop()}\n")
    print_table(
        ("node", "Python", "vLLM", "overlay", "active", "patches", "state"),
        [_node(node, named=bool(interpreters)) for node in cluster.nodes],
    )
    if cluster.differences:
        print()
        print_table(
            ("what differs", "value", "nodes"),
            [
                (difference.what, value, ", ".join(nodes))
                for difference in cluster.differences
                for value, nodes in difference.values.items()
            ],
        )
    print()
    count = len(cluster.nodes)
    if cluster.holds:
        print(f"The overlay holds on {count} nodes, which agree.")
        return
    wrong = [node.name for node in cluster.nodes if not node.holds]
    if wrong:
        print(f"The overlay does NOT hold on {len(wrong)} of {count} nodes: {', '.join(wrong)}.")
    if cluster.differences:
        print(f"The nodes differ: {', '.join(item.what for item in cluster.differences)}.")


def _node(node: Node, *, named: bool) -> Row:
    """Make the row of a node; its interpreter is named where not all nodes have the same."""
    notes = [] if node.holds else list(node.details)
    if node.differs:
        notes.append(f"differs from most nodes: {', '.join(node.differs)}")
    state = "holds" if node.holds else "does NOT hold"
    if not node.answer:
        return Row((node.name, "-", "-", "-", "-", "-", state), notes)
    if named:
        notes.insert(0, f"interpreter: {node.answer['interpreter']}")
    patches = node.patches
    cells = (
        node.name,
        node.answer["python"],
        node.vllm,
        node.overlay,
        "yes" if node.active else "NO",
        "-" if patches is None else f"{patches[0]} of {patches[1]}",
        state,
    )
    return Row(cells, notes)
