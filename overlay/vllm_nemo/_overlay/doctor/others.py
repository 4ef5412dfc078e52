"""Other interpreters: what one of them would load, and what its own doctor says.

An interpreter is asked in a fresh process, which needs neither vLLM nor the overlay to answer, and
imports neither.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay.doctor.report import FAIL, Check, Report
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.installed import Installed

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds for an answer: interpreters on network file systems start slowly.
TIMEOUT = 60.0

# What an interpreter says of itself. It must run in any Python 3, and in one whose environment is
# broken. -c puts the current directory first on sys.path, where a script has its own.
_QUESTION = """\
import sys
if sys.path[:1] == [""]:
    sys.path[:1] = sys.argv[1:]
ours = "vllm_nemo"
def find(name):
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) != ours and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, None)
            if spec is not None:
                return spec.origin and list(spec.submodule_search_locations or [None])[0]
print(ascii({
    "executable": sys.executable,
    "prefix": sys.prefix,
    "kind": "%s %s" % (sys.implementation.cache_tag, getattr(sys, "abiflags", "")),
    "active": any(getattr(finder, "__module__", None) == ours for finder in sys.meta_path),
    "overlay": find(ours),
    "vllm": find("vllm"),
}))
"""
# The same as `python -m vllm_nemo`, but for the current directory.
_DOCTOR = """\
import runpy, sys
if sys.path[:1] == [""]:
    del sys.path[0]
runpy.run_module("vllm_nemo", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Answer:
    """What an interpreter says of itself.

    Attributes:
        executable: Its path.
        prefix: The directory of its environment.
        kind: Its implementation, version and build.
        active: Whether it has the overlay's finder before it runs anything.
        overlay: The directory of the ``vllm_nemo`` package there, None if there is none.
        vllm: The directory of the ``vllm`` package there, None if there is none.
    """

    executable: str
    prefix: str
    kind: str
    active: bool
    overlay: str | None
    vllm: str | None

    @property
    def here(self) -> bool:
        """Whether it is the interpreter of this process, by whichever of its names.

        The paths of a Python and of its links differ within one environment, and are alike in two:
        what counts is the environment, and the build of Python that reads it.
        """
        kind = f"{sys.implementation.cache_tag} {sys.abiflags}"
        return self.kind == kind and os.path.realpath(self.prefix) == os.path.realpath(sys.prefix)

    @property
    def installed(self) -> Installed | None:
        """The vLLM that it would load, None if there is none."""
        return None if self.vllm is None else Installed(Path(self.vllm))


def ask(command: Sequence[str], directory: str = "") -> Answer | str:
    """Ask an interpreter what it would load.

    Args:
        command: Its path, and options.
        directory: That of the script it is to run, which comes first on ``sys.path``; empty if it
            runs none.

    Returns:
        Its answer, or why there is none.
    """
    arguments = [directory] if directory else []
    try:
        process = subprocess.run(
            [*command, "-c", _QUESTION, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=True,
        )
        # The last line, because a .pth file may print something.
        return Answer(**ast.literal_eval(process.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT:g} s"
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
        return f"it fails at its start: {last[0]}"
    except OSError as error:
        return f"it cannot be run: {error.strerror}"
    except (ValueError, SyntaxError, IndexError, TypeError):
        return "it does not answer as a Python does"


def examine(python: str, arguments: Sequence[str]) -> Report | int:
    """Have the doctor of another interpreter look at it, and print its report.

    Args:
        python: The interpreter's path, or its name on PATH.
        arguments: What to give to that doctor.

    Returns:
        The exit status of that doctor; a report if there is none, which has printed nothing.

    Raises:
        OverlayError: if there is no such interpreter, or it does not answer.
    """
    path = shutil.which(python)
    answer = "there is no such program" if path is None else ask([path])
    if path is None or isinstance(answer, str):
        raise OverlayError(f"--python {python}: {answer}")
    if answer.overlay is None:
        return _without_overlay(answer)
    sys.stdout.flush()
    command = [path, "-c", _DOCTOR, "doctor", *arguments]
    try:
        status = subprocess.run(command, timeout=10 * TIMEOUT, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise OverlayError(f"--python {python}: no answer within {error.timeout:g} s") from error
    if status < 0:
        raise OverlayError(f"--python {python}: its doctor was ended by signal {-status}")
    return status


def _without_overlay(answer: Answer) -> Report:
    installed = answer.installed
    release = installed.release if installed else None
    wanted = f'"vllm-nemo=={release}.*"' if release else "vllm-nemo"
    check = Check(
        "overlay",
        FAIL,
        f"vllm-nemo is not installed for {answer.executable}, which loads {loads(answer)}. "
        f"To install it there:\n  {answer.executable} -m pip install {wanted}",
    )
    report = Report([check], python=answer.executable, installed=installed)
    if installed is not None:
        report.directory = installed.directory
    return report


def loads(answer: Answer) -> str:
    """Say which vLLM and which overlay an interpreter would load.

    Args:
        answer: Its answer.
    """
    installed = answer.installed
    if installed is None:
        return "no vLLM"
    vllm = f"vLLM {installed.version or 'of an unknown version'} at {answer.vllm}"
    if answer.active:
        return f"{vllm}, with the overlay at {answer.overlay or 'an unknown place'}"
    if answer.overlay is not None:
        return f"stock {vllm}: the overlay at {answer.overlay} is not active there"
    return f"stock {vllm}, without an overlay"
