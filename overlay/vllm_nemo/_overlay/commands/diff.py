"""``vllm-nemo diff``: how the served modules differ from stock vLLM."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vllm_nemo._overlay import api, served
from vllm_nemo._overlay.commands.output import HOLDS, print_json
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest

if TYPE_CHECKING:
    import argparse

HELP = "show the difference between stock vLLM and what is served"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="only the modules that this patch changes"
    )


def run(options: argparse.Namespace) -> int:
    """Print a unified diff that ``git apply`` accepts.

    Returns:
        The exit status.

    Raises:
        OverlayError: if there is no built overlay or no vLLM, or a file is not as it was built.
    """
    manifest = load_manifest()
    known = [patch.id for patch in manifest.patches]
    if options.id is not None and options.id not in known:
        options.parser.error(f"no patch {options.id!r}; there are: {', '.join(known) or 'none'}")
    directory = api.vllm_directory()
    if directory is None:
        base = manifest.base
        raise OverlayError(
            f"vLLM is not installed for {sys.executable}: there is nothing to compare with. The "
            f'one that the overlay is for: pip install "{base.distribution}=={base.version}"'
        )
    found = list(served.diffs(manifest, directory, options.id))
    if options.json:
        print_json(
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
