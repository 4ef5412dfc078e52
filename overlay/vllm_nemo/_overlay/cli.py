"""The ``vllm-nemo`` command: doctor, patches, diff, verify."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from vllm_nemo._overlay import api, files, served
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.stock import mismatch
from vllm_nemo._overlay.tables import Row, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_nemo._overlay.manifest import Manifest, Patch
    from vllm_nemo._overlay.ray_nodes import Node

HOLDS = 0
FAILS = 1
USAGE = 2

# Seconds. A worker starts in a few, but a busy node or an interpreter on a network file system
# takes its time.
_TIMEOUT = 60.0

_EPILOG = """\
exit status:
  0  everything that was asked holds
  1  something does not hold (the overlay is not active, a file is not as it was
     built, vLLM is missing or is another one, nodes of a cluster differ), or the
     question has no answer (there is no overlay here, no Ray, no cluster)
  2  usage error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except OverlayError as error:
        if options.json:
            _print_json({"error": str(error)})
        else:
            print(f"vllm-nemo: {error}", file=sys.stderr)
        return FAILS
    except BrokenPipeError:
        # The reader has seen enough. Keep the interpreter from complaining when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILS
    return status


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        try:
            manifest = load_manifest()
        except OverlayError as error:
            parser.exit(FAILS, f"vllm-nemo: {error}\n")
        print(f"vllm-nemo {manifest.overlay} for {_base_name(manifest)}")
        parser.exit(HOLDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-nemo",
        description="Look at the vLLM overlay of this environment. Imports neither vLLM nor torch.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="command", required=True)

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        command.set_defaults(run=run, parser=command)
        return command

    doctor = add(
        "doctor", _doctor, "tell whether this interpreter runs the overlay, and if not, why"
    )
    doctor.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="ask every node of a running Ray cluster instead, and compare the answers "
        "(default: RAY_ADDRESS, or the cluster of this machine)",
    )
    doctor.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"with --ray: how long to wait for the nodes (default: {_TIMEOUT:g})",
    )
    doctor.add_argument(
        "--py-executable",
        metavar="COMMAND",
        help="with --ray: ask workers started with this interpreter (Ray's py_executable), as "
        "NeMo-RL starts its own, and not those that Ray starts by itself",
    )
    add("patches", _patches, "list the patches and what became of each for this vLLM")
    diff = add("diff", _diff, "show the difference between stock vLLM and what is served")
    diff.add_argument(
        "id", nargs="?", metavar="ID", help="only the modules that this patch changes"
    )
    add("verify", _verify, "hold every served file and its stock file against the manifest")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from vllm_nemo._overlay import doctor

    if options.ray is not None:
        return _doctor_ray(options)
    if options.timeout is not None or options.py_executable is not None:
        options.parser.error("--timeout and --py-executable go with --ray")
    report = doctor.examine()
    status = HOLDS if report.holds else FAILS
    if options.json:
        _print_json(report.as_json())
        return status
    _print_table(
        ("check", "state", "detail"),
        [(check.name, check.state, check.detail) for check in report.checks],
    )
    if report.patches:
        print()
        _print_table(
            ("patch", "state", "switch"),
            [
                Row((item.patch.id, item.state, item.switch), [item.patch.title])
                for item in report.patches
            ],
        )
    failed = [check.name for check in report.checks if check.state == doctor.FAIL]
    print()
    print(f"The overlay does NOT hold: {', '.join(failed)}." if failed else "The overlay holds.")
    return status


def _doctor_ray(options: argparse.Namespace) -> int:
    from vllm_nemo._overlay import ray_nodes

    timeout = _TIMEOUT if options.timeout is None else options.timeout
    cluster = ray_nodes.ask(options.ray, timeout=timeout, py_executable=options.py_executable)
    status = HOLDS if cluster.holds else FAILS
    if options.json:
        _print_json(cluster.as_json())
        return status
    _print_table(
        ("node", "interpreter", "Python", "vLLM", "overlay", "active", "patches", "state"),
        [_node_row(node) for node in cluster.nodes],
    )
    if cluster.differences:
        print()
        _print_table(
            ("what differs", "nodes", "value"),
            [
                (difference.what, ", ".join(nodes), value)
                for difference in cluster.differences
                for value, nodes in difference.values.items()
            ],
        )
    print()
    if cluster.holds:
        print(f"The overlay holds on {len(cluster.nodes)} nodes, which agree.")
        return status
    wrong = [node.name for node in cluster.nodes if not node.holds]
    if wrong:
        print(f"The overlay does NOT hold on {len(wrong)} of {len(cluster.nodes)} nodes: ", end="")
        print(f"{', '.join(wrong)}.")
    if cluster.differences:
        print(f"The nodes differ: {', '.join(item.what for item in cluster.differences)}.")
    return status


def _node_row(node: Node) -> tuple[str, ...]:
    state = ["holds"] if node.holds else node.details or ["does not hold"]
    if node.differs:
        state.append(f"differs from most nodes: {', '.join(node.differs)}")
    if not node.answer:
        return (node.name, "-", "-", "-", "-", "-", "-", "\n".join(state))
    patches = node.report.get("patches", [])
    there = [patch for patch in patches if patch["state"] in ("served", "in vLLM itself")]
    needed = [patch for patch in patches if patch["state"] != "not needed"]
    return (
        node.name,
        node.answer["interpreter"],
        node.answer["python"],
        node.vllm,
        node.overlay,
        "yes" if node.active else "NO",
        f"{len(there)} of {len(needed)}" if patches else "-",
        "\n".join(state),
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _patches(options: argparse.Namespace) -> int:
    manifest = load_manifest()
    directory = _vllm_or_none()
    if options.json:
        _print_json(
            {
                "overlay": manifest.overlay,
                "base": dataclasses.asdict(manifest.base),
                "vllm": None if directory is None else str(directory),
                "patches": [dataclasses.asdict(patch) for patch in manifest.patches],
            }
        )
        return HOLDS
    print(f"vllm-nemo {manifest.overlay} for {_base_name(manifest)}")
    if directory is None:
        print("vLLM is not installed for this interpreter.")
    print()
    _print_table(
        ("patch", "outcome", "variant", "switch"),
        [
            Row((patch.id, patch.outcome, patch.variant or "-", patch.switch), _description(patch))
            for patch in manifest.patches
        ],
    )
    return HOLDS


def _diff(options: argparse.Namespace) -> int:
    manifest = load_manifest()
    known = [patch.id for patch in manifest.patches]
    if options.id is not None and options.id not in known:
        options.parser.error(f"no patch {options.id!r}; there are: {', '.join(known) or 'none'}")
    directory = api.vllm_directory()
    if directory is None:
        raise OverlayError(
            f"vLLM is not installed for {sys.executable}: there is nothing to compare with."
        )
    found = list(served.diffs(manifest, directory, options.id))
    if options.json:
        _print_json(
            {
                "overlay": manifest.overlay,
                "vllm": str(directory),
                "diffs": [
                    {"module": module.name, "patches": list(module.patches), "diff": text}
                    for module, text in found
                ],
            }
        )
        return HOLDS
    for _, text in found:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", errors="surrogateescape"))
    if not found:
        print("The overlay serves no module for it.", file=sys.stderr)
    return HOLDS


def _verify(options: argparse.Namespace) -> int:
    manifest = load_manifest()
    problem = ""
    try:
        directory = api.vllm_directory()
    except OverlayError as error:
        directory, problem = None, str(error)
    if directory is None and not problem:
        problem = "vLLM is not installed for this interpreter: the base is absent."
    states = served.module_states(manifest, directory)
    wrong = [state for state in states if not state.holds]
    if directory is not None and any(state.stock != files.OK for state in states):
        wrong_stock = {
            state.module.path: state.stock for state in states if state.stock != files.OK
        }
        problem = str(mismatch(manifest, directory, wrong_stock))
    status = FAILS if wrong or problem else HOLDS
    if options.json:
        _print_json(
            {
                "holds": status == HOLDS,
                "overlay": manifest.overlay,
                "vllm": None if directory is None else str(directory),
                "problem": problem or None,
                "modules": [
                    {"module": state.module.name, "stock": state.stock, "served": state.served}
                    for state in states
                ],
            }
        )
        return status
    _print_table(
        ("module", "stock", "served", "patches"),
        [
            (
                state.module.name,
                "added" if state.module.stock is None and state.stock == files.OK else state.stock,
                state.served,
                ", ".join(state.module.patches),
            )
            for state in states
        ],
    )
    print()
    if problem:
        print(problem)
    if any(state.served != files.OK for state in states):
        print("Served files are not as they were built: reinstall vllm-nemo.")
    if status == HOLDS:
        added = f", {len(manifest.data)} of data," if manifest.data else ""
        modules = f"{len(manifest.modules)} modules{added}"
        print(f"All {modules} and their stock files are as they were built.")
    return status


def _vllm_or_none() -> object:
    try:
        return api.vllm_directory()
    except OverlayError:
        return None


def _base_name(manifest: Manifest) -> str:
    base = manifest.base
    return f"{base.distribution} {base.version}" + ("" if base.locked else " (not locked)")


def _description(patch: Patch) -> list[str]:
    return [text for text in (patch.title, patch.reason, patch.note) if text]


def _print_json(data: dict[str, Any]) -> None:
    json.dump(data, sys.stdout, indent=2)
    print()


def _print_table(header: Sequence[str], rows: Iterable[Row | Sequence[str]]) -> None:
    print(render(header, list(rows)))
