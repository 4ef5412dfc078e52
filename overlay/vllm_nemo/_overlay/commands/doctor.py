"""``vllm-nemo doctor``: whether this interpreter, or every node of a cluster, runs the overlay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo._overlay.commands.output import print_json, status_of
from vllm_nemo._overlay.tables import Row, fits, render

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
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument(
        "--python",
        metavar="PATH",
        help="ask another interpreter instead: its path, or its name on PATH",
    )
    whom.add_argument(
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
    """Ask this interpreter, with ``--python`` another one, or with ``--ray`` all of a cluster.

    Returns:
        The exit status.

    Raises:
        OverlayError: if there is no such interpreter, no Ray, or no cluster to join.
    """
    if options.ray is None:
        if options.timeout is not None or options.py_executable is not None:
            options.parser.error("--timeout and --py-executable go with --ray")
        return _one(options)
    from vllm_nemo._overlay.doctor import ray_nodes

    timeout = _TIMEOUT if options.timeout is None else options.timeout
    cluster = ray_nodes.ask(options.ray, timeout=timeout, py_executable=options.py_executable)
    if options.json:
        print_json(cluster.as_json())
    else:
        print(cluster_as_text(cluster))
    return status_of(cluster.holds)


def _one(options: argparse.Namespace) -> int:
    """Ask one interpreter: this one, or that of ``--python``."""
    if options.python is None:
        from vllm_nemo._overlay.doctor.examine import examine
        from vllm_nemo._overlay.doctor.typed import commands

        report = examine()
        if report.manifest is not None:
            # Not a part of `examine`: nobody types the commands of Ray's workers.
            report.checks.append(commands(report))
    else:
        from vllm_nemo._overlay.doctor import others

        answer = others.examine(options.python, ["--json"] if options.json else [])
        if isinstance(answer, int):
            return answer
        report = answer
    if options.json:
        print_json(report.as_json())
    else:
        print(report_as_text(report))
    return status_of(report.holds)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def report_as_text(report: Report) -> str:
    """Show what the doctor has found about this interpreter.

    Args:
        report: What ``examine`` returns.

    Returns:
        A table of checks, one of patches, and a verdict as the last line.
    """
    from vllm_nemo._overlay.doctor.report import FAIL

    beside = [max(len(check.name) for check in report.checks), len("state")]
    rows = [
        Row((check.name, check.state, check.detail))
        if fits(check.detail, beside)
        else Row((check.name, check.state, ""), [check.detail])
        for check in report.checks
    ]
    parts = [render(("check", "state", "detail"), rows)]
    if report.patches:
        rows = [
            Row((item.patch.id, item.state, item.switch), [item.patch.title])
            for item in report.patches
        ]
        parts.append(render(("patch", "state", "switch"), rows))
    failed = ", ".join(check.name for check in report.checks if check.state == FAIL)
    parts.append(f"The overlay does NOT hold: {failed}." if failed else "The overlay holds.")
    return "\n\n".join(parts)


def cluster_as_text(cluster: Cluster) -> str:
    """Show what the nodes of a cluster have answered.

    Args:
        cluster: What ``ray_nodes.ask`` returns.

    Returns:
        A table of nodes, one of what differs if anything does, and a verdict as the last line.
    """
    interpreters = {node.answer["interpreter"] for node in cluster.nodes if node.answer}
    parts = []
    if len(interpreters) == 1:
        parts.append(f"Interpreter of the workers: {interpreters.pop()}")
    rows = [_node_row(node, named=bool(interpreters)) for node in cluster.nodes]
    header = ("node", "Python", "vLLM", "overlay", "active", "patches", "state")
    parts.append(render(header, rows))
    if cluster.differences:
        differing = [
            (difference.what, value, ", ".join(nodes))
            for difference in cluster.differences
            for value, nodes in difference.values.items()
        ]
        parts.append(render(("what differs", "value", "nodes"), differing))
    parts.append(_verdict(cluster))
    return "\n\n".join(parts)


def _verdict(cluster: Cluster) -> str:
    count = len(cluster.nodes)
    if cluster.holds:
        return f"The overlay holds on {count} nodes, which agree."
    lines = []
    wrong = [node.name for node in cluster.nodes if not node.holds]
    if wrong:
        listed = ", ".join(wrong)
        lines.append(f"The overlay does NOT hold on {len(wrong)} of {count} nodes: {listed}.")
    if cluster.differences:
        lines.append(f"The nodes differ: {', '.join(item.what for item in cluster.differences)}.")
    return "\n".join(lines)


def _node_row(node: Node, *, named: bool) -> Row:
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
