"""The commands that users type: whether they run the interpreter that the doctor looks at.

In a virtual environment over an image's Python, ``vllm`` can be the image's: it runs stock vLLM,
whatever holds in the environment.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay.doctor import others, scripts
from vllm_nemo._overlay.doctor.report import FAIL, OK, WARN, Check
from vllm_nemo._overlay.manifest import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_nemo._overlay.doctor.others import Answer
    from vllm_nemo._overlay.doctor.report import Report
    from vllm_nemo._overlay.doctor.scripts import Script

# The commands, and the module by which `python -m` runs each.
_MODULES = {
    "vllm": "vllm.entrypoints.cli.main",
    "vllm-nemo": "vllm_nemo",
    "ray": "ray.scripts.scripts",
    "torchrun": "torch.distributed.run",
}
# Of these, only what they start loads vLLM.
_STARTERS = ("ray", "torchrun")

_ask = functools.cache(others.ask)


@dataclass
class _Fault:
    """What is wrong with some commands.

    Attributes:
        state: ``FAIL`` or ``WARN``.
        what: What they do, after "on PATH"; a verb for one command, and one for several.
        why: A sentence on it.
        install: The command that gives the overlay to the Python that they run, empty if none does.
        names: The commands.
        files: The files that they are.
    """

    state: str
    what: tuple[str, str]
    why: str
    install: str = ""
    names: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def commands(report: Report) -> Check:
    """Follow the commands that users type, by PATH and their first lines, to an interpreter.

    Args:
        report: What the doctor has found about this one.

    Returns:
        The check. It fails if one of them runs another interpreter.
    """
    _ask.cache_clear()
    faults: dict[str, _Fault] = {}
    right, absent = [], []
    for name in _MODULES:
        found = next(scripts.on_path(name), None)
        if found is None:
            absent.append(name)
            continue
        fault = _fault(name, scripts.read(found), report)
        if fault is None:
            right.append(name)
            continue
        fault = faults.setdefault(fault.why, fault)
        fault.names.append(name)
        fault.files.append(found)
    if faults:
        state = FAIL if any(fault.state == FAIL for fault in faults.values()) else WARN
        return Check("commands", state, "\n".join(_tell(f, report) for f in faults.values()))
    if not right:
        return Check("commands", OK, f"{_listed(absent)} are not on PATH")
    verb = "runs" if len(right) == 1 else "run"
    return Check("commands", OK, f"{_listed(right)} on PATH {verb} this Python")


def _fault(name: str, script: Script, report: Report) -> _Fault | None:
    if not script.command:
        return _Fault(
            WARN,
            ("is not a Python script", "are not Python scripts"),
            f"{script.file} {script.problem}: which Python it runs cannot be told.",
        )
    answer = _ask(script.command, script.directory)
    python = " ".join(script.command)
    if isinstance(answer, str):
        return _Fault(FAIL, ("does not start", "do not start"), f"{python}: {answer}.")
    # With -S, a Python does not say that it is the one of a virtual environment.
    plain = _ask(script.command[:1], script.directory) if script.command[1:] else answer
    here = isinstance(plain, others.Answer) and plain.here
    same = _loads_the_same(answer, report)
    if here and same:
        return None
    if here:
        options = " ".join(script.command[1:])
        with_ = f" with {options}" if options else ""
        what = (f"starts this Python{with_}", f"start this Python{with_}")
        return _Fault(FAIL, what, f"{python} loads {others.loads(answer)}.")
    what = ("runs another Python than this one", "run another Python than this one")
    if same:
        return _Fault(WARN, what, f"{python} loads the same vLLM and the same overlay.")
    harmless = name in _STARTERS and answer.vllm is None
    return _Fault(
        WARN if harmless else FAIL,
        what,
        f"{python} loads {others.loads(answer)}.",
        _install(script, answer, report),
    )


def _loads_the_same(answer: Answer, report: Report) -> bool:
    """Tell whether an interpreter loads the files that the doctor has looked at."""
    looked_at = (str(PACKAGE), None if report.directory is None else str(report.directory))
    found = (answer.overlay, answer.vllm)
    return answer.active and list(map(_real, found)) == list(map(_real, looked_at))


def _real(path: str | None) -> str | None:
    return None if path is None else os.path.realpath(path)


def _install(script: Script, answer: Answer, report: Report) -> str:
    """Return the command by which a Python with stock vLLM gets the overlay for it."""
    installed, manifest = answer.installed, report.manifest
    if installed is None or manifest is None or answer.overlay is not None:
        return ""
    same = report.directory is not None and _real(answer.vllm) == _real(str(report.directory))
    release = installed.release
    if not same and release is None:
        return ""
    wanted = f'--no-deps "vllm-nemo=={manifest.overlay}"' if same else f'"vllm-nemo=={release}.*"'
    return f"{script.command[0]} -m pip install {wanted}"


def _tell(fault: _Fault, report: Report) -> str:
    """Write a fault, and below it the commands to use instead."""
    verb = fault.what[0] if len(fault.names) == 1 else fault.what[1]
    files = ", ".join(map(str, fault.files))
    lines = [f"{_listed(fault.names)} on PATH {verb} ({files}). {fault.why}"]
    if fault.state == FAIL:
        own = {name: next(_own(name, report), None) for name in fault.names}
        lines.append(f"Use in {'its' if len(own) == 1 else 'their'} place:")
        for name, file in own.items():
            lines.append(f"  {file or f'{sys.executable} -m {_MODULES[name]}'}")
        directories = dict.fromkeys(str(file.parent) for file in own.values() if file)
        if directories:
            lines.append(f"or put {' and '.join(directories)} first on PATH.")
        if fault.install:
            lines += ["Or give that Python the overlay:", f"  {fault.install}"]
    return "\n".join(lines)


def _own(name: str, report: Report) -> Iterator[Path]:
    """Give the files of a command that would run this interpreter."""
    directories = [sysconfig.get_path("scripts"), str(Path(site.getuserbase(), "bin"))]
    installed = [Path(directory, name) for directory in directories]
    for file in dict.fromkeys([*installed, *scripts.on_path(name)]):
        if file.is_file() and os.access(file, os.X_OK):
            script = scripts.read(file)
            if script.command and _fault(name, script, report) is None:
                yield file


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
