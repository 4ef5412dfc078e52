"""The command ``vllm-nemo``: its parser, and what becomes of errors."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from vllm_nemo._overlay import streams
from vllm_nemo._overlay.commands import diff, doctor, patches, verify
from vllm_nemo._overlay.commands.output import FAILS, HOLDS, USAGE, overlay_name, print_json
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = {"doctor": doctor, "patches": patches, "diff": diff, "verify": verify}

_EPILOG = """\
exit status:
  0  everything that was asked holds
  1  something does not hold (the overlay is not active, a file is not as it was
     built, vLLM is missing or is another one, nodes of a cluster differ), or the
     question has no answer (there is no overlay here, no Ray, no cluster)
  2  usage error
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The arguments, None for those of this process.

    Returns:
        The exit status.
    """
    return streams.run(lambda: _run(arguments), "vllm-nemo")


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        status: int = options.run(options)
    except OverlayError as error:
        if options.json:
            print_json({"error": str(error)})
        else:
            print(f"vllm-nemo: {error}", file=sys.stderr)
        return FAILS
    return status


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        try:
            manifest = load_manifest()
        except OverlayError as error:
            parser.exit(FAILS, f"vllm-nemo: {error}\n")
        print(overlay_name(manifest))
        parser.exit(HOLDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-nemo",
        description="Look at the vLLM overlay of this environment. Imports neither vLLM nor torch.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="command")
    for name, module in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=f"{module.HELP[0].upper()}{module.HELP[1:]}.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    return parser
