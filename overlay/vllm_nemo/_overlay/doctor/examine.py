"""Everything that the doctor asks about this interpreter, in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_nemo._overlay import files, outcomes, served, whole
from vllm_nemo._overlay.doctor import installation, interpreter
from vllm_nemo._overlay.doctor.report import FAIL, OK, WARN, Check, PatchState, Report
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.switches import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_nemo._overlay.manifest import Manifest, Patch
    from vllm_nemo._overlay.served import ModuleState


def examine() -> Report:
    """Look at this interpreter and its environment. Imports neither vLLM nor torch.

    Returns:
        The report. What could not be looked at, because something before it fails, is left out.
    """
    report = Report()
    add = report.checks.append
    add(interpreter.interpreter())
    try:
        manifest = report.manifest = load_manifest()
    except OverlayError as error:
        add(Check("overlay", FAIL, str(error)))
        return report
    add(_overlay(manifest))
    report.checks += _queues(manifest)
    switch = interpreter.switch()
    add(switch)
    process = interpreter.this_process()
    add(process)
    report.checks += interpreter.new_process(manifest)
    damage = whole.damage(manifest)
    add(interpreter.start_files(manifest, damage))
    add(_own_files(manifest, damage))

    base = installation.vllm(report, manifest)
    add(base)
    directory, installed = report.directory, report.installed
    if directory is not None and installed is not None:
        report.checks += installation.release(manifest, installed, matches=base.state == OK)
        report.checks += installation.vllm_files(manifest, directory, installed)
    states = served.module_states(manifest, directory)
    add(_served(manifest, states))
    report.checks += interpreter.loaded_modules(manifest)
    report.active = OK == switch.state == process.state == base.state
    if report.active and directory is not None:
        add(interpreter.imports(manifest, directory))
    add(interpreter.guard(manifest))
    report.checks += interpreter.risks()
    report.patches = tuple(
        PatchState(patch, _patch_state(patch, states, active=report.active), _switch_of(patch))
        for patch in manifest.patches
    )
    return report


def _overlay(manifest: Manifest) -> Check:
    base = manifest.base
    detail = (
        f"vllm-nemo {manifest.overlay} for {base.distribution} {base.version}: "
        f"{len(manifest.patches)} patches, {len(manifest.modules)} modules"
        + (f", {len(manifest.data)} data files" if manifest.data else "")
    )
    if base.locked:
        return Check("overlay", OK, detail)
    return Check("overlay", WARN, f"{detail}; built from a base that no lock covers")


def _queues(manifest: Manifest) -> Iterator[Check]:
    """Name the queues of an overlay that is not the project's own, whole."""
    if len(manifest.queues) > 1 or not all(queue.whole for queue in manifest.queues):
        yield Check("queues", OK, "\n".join(map(str, manifest.queues)))


def _served(manifest: Manifest, states: tuple[ModuleState, ...]) -> Check:
    wrong = [state for state in states if state.served != files.OK]
    if wrong:
        listed = "; ".join(f"{state.module.path} is {state.served}" for state in wrong)
        return Check("served files", FAIL, f"{listed}.\n{manifest.repair}")
    return Check("served files", OK, f"{len(states)} as they were built")


def _own_files(manifest: Manifest, damage: Mapping[str, str]) -> Check:
    """Check this package itself, and the packages of other queues."""
    own = [path for path in manifest.own if "/" in path]
    wrong = {path: state for path, state in damage.items() if "/" in path}
    if wrong:
        return Check("overlay files", FAIL, str(whole.damaged(manifest, wrong)))
    return Check("overlay files", OK, f"{len(own)} as they were built")


def _patch_state(patch: Patch, states: tuple[ModuleState, ...], *, active: bool) -> str:
    if patch.outcome == outcomes.NOT_NEEDED:
        return outcomes.UNNEEDED
    in_vllm = {outcomes.PRESENT: outcomes.IN_VLLM, outcomes.PROVIDED: outcomes.SAID_TO_BE}
    if patch.outcome in in_vllm:
        return in_vllm[patch.outcome] if active else outcomes.UNKNOWN
    wrong = [state for state in states if patch.id in state.module.patches and not state.holds]
    return outcomes.SERVED if active and not wrong else outcomes.NOT_SERVED


def _switch_of(patch: Patch) -> str:
    if patch.switch == ALWAYS:
        return patch.switch
    value = os.environ.get(patch.switch)
    return f"{patch.switch} (not set)" if value is None else f"{patch.switch}={value}"
