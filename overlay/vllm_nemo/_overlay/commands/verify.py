"""``vllm-nemo verify``: whether all files of the overlay and the stock files are as built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo._overlay import api, files, served, whole
from vllm_nemo._overlay.commands.output import print_json, print_table, status_of
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.stock import mismatch
from vllm_nemo._overlay.tables import Row, fold

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vllm_nemo._overlay.manifest import Manifest
    from vllm_nemo._overlay.served import ModuleState

HELP = "hold every file of the overlay, and the stock files it replaces, against the manifest"

# In place of the state of a stock file, for a module that vLLM does not have.
_ADDED = "added"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser: it has none of its own."""


def run(options: argparse.Namespace) -> int:
    """Compare every file of the overlay, and the stock files it replaces, with the manifest.

    Returns:
        The exit status.

    Raises:
        OverlayError: if there is no built overlay.
    """
    manifest = load_manifest()
    directory, problem = _find_vllm(manifest)
    states = served.module_states(manifest, directory)
    if directory is not None:
        wrong = {state.module.path: state.stock for state in states if state.stock != files.OK}
        problem = str(mismatch(manifest, directory, wrong)) if wrong else ""
    damage = whole.damage(manifest)
    holds = not problem and not damage and all(state.holds for state in states)
    if options.json:
        print_json(
            {
                "holds": holds,
                "overlay": manifest.overlay,
                "vllm": None if directory is None else str(directory),
                "problem": problem or None,
                "files": damage,
                "modules": [
                    {"module": state.module.name, "stock": state.stock, "served": state.served}
                    for state in states
                ],
            }
        )
    else:
        _show(manifest, states, damage, problem)
    return status_of(holds)


def _find_vllm(manifest: Manifest) -> tuple[Path | None, str]:
    """Return the directory of ``vllm``, or None and what is the matter."""
    try:
        directory = api.vllm_directory()
    except OverlayError as error:
        return None, str(error)
    base = manifest.base
    missing = (
        "vLLM is not installed for this interpreter: the base is absent. The one that the overlay "
        f'is for: pip install "{base.distribution}=={base.version}"'
    )
    return directory, missing if directory is None else ""


def _show(
    manifest: Manifest, states: Sequence[ModuleState], damage: Mapping[str, str], problem: str
) -> None:
    print_table(("module", "stock", "served"), [_row(state) for state in states])
    print()
    if problem:
        print(problem)
    changed = [state for state in states if state.served != files.OK]
    if changed:
        print(f"{len(changed)} served files are not as they were built. {manifest.repair}")
    if damage:
        print(whole.damaged(manifest, damage))
    if not problem and not changed and not damage:
        added = f", {len(manifest.data)} of data," if manifest.data else ""
        modules = f"{len(manifest.modules)} modules{added}"
        print(fold(f"All {modules} and their stock files are as they were built."))
        print(fold(f"So are the {len(manifest.own)} other files of the overlay."))


def _row(state: ModuleState) -> Row:
    module = state.module
    is_added = module.stock is None and state.stock == files.OK
    cells = (module.name, _ADDED if is_added else state.stock, state.served)
    return Row(cells, [", ".join(module.patches)])
