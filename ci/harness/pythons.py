"""Runs the quick tests on other Pythons, each in an environment of its own.

A Python is looked for on PATH, among pyenv's, and among those that uv can install; where none has
it, it comes with a small Debian system in a directory (needs Linux, root and debootstrap).
Ends with a table. The exit status is 0 only if each Python ran tests and none of them failed.
Arguments after `--` go to pytest.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness import junit, roots, tables, tools
from harness.tools import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What is run on each Python: on those that vLLM does not support yet, the activation alone.
QUICK = ("tests/unit", "tests/activation", "tests/wheel")
SUITES: Mapping[str, Sequence[str]] = {
    "3.10": QUICK,
    "3.11": QUICK,
    "3.12": QUICK,
    "3.13": QUICK,
    "3.14": QUICK,
    "3.15": ("tests/activation",),
}
OUT = BUILD / "pythons"
_ASK = "import ensurepip, sys, venv; print('.'.join(map(str, sys.version_info[:3])))"


@dataclasses.dataclass(frozen=True)
class Python:
    """An interpreter, and how it is run.

    Attributes:
        path: The interpreter, where it is run.
        release: Its version, with the third number.
        source: Where it comes from, in a word or two.
        prefix: The words in front of its commands.
    """

    path: str | Path
    release: str
    source: str
    prefix: tuple[str | Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Result:
    """What a Python came to.

    Attributes:
        version: The Python that was asked for.
        python: The one that ran, None if there is none.
        counts: How many tests ended in each way.
        note: What is wrong; empty if nothing is.
        seconds: How long the tests took.
    """

    version: str
    python: Python | None = None
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    note: str = ""
    seconds: float = 0


def main() -> int:
    """Run what the command line asks for (``ci/pythons``); return the exit status."""
    parser = argparse.ArgumentParser(prog="ci/pythons", description=__doc__)
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"of {', '.join(SUITES)} (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="test processes at a time (default: 2)")
    own = sys.argv[1:]
    extra: list[str] = []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    unknown = [version for version in options.versions if version not in SUITES]
    if unknown:
        parser.error(f"no such Python: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    results = []
    for version in options.versions or SUITES:
        results.append(_test(version, jobs=options.jobs, extra=extra))
        print(f"Python {version}: {_outcome(results[-1])}", file=sys.stderr, flush=True)
    print(tables.render(*table(results)))
    return 0 if all(not result.note for result in results) else 1


def table(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Lay results out as a table.

    Returns:
        The header, and a row for each Python.
    """
    header = ["Python", "from", "suites", *junit.OUTCOMES, "seconds", "outcome"]
    rows = []
    for result in results:
        python = result.python
        suites = " ".join(suite.removeprefix("tests/") for suite in SUITES[result.version])
        counts = [str(result.counts.get(outcome, 0)) for outcome in junit.OUTCOMES]
        rows.append(
            [
                python.release if python else result.version,
                python.source if python else "-",
                suites,
                *counts,
                str(round(result.seconds)),
                _outcome(result),
            ]
        )
    return header, rows


def _outcome(result: Result) -> str:
    return result.note or "ok"


def judge(status: int, counts: Mapping[str, int]) -> str:
    """Say what is wrong with a run of pytest.

    Args:
        status: Its exit status.
        counts: How many tests ended in each way, by its record.

    Returns:
        A few words; none if tests passed and nothing failed.
    """
    if counts.get(junit.FAILED):
        return "failed"
    if status != 0:
        return f"pytest ended with {status}"
    return "" if counts.get(junit.PASSED) else "no test passed"


def _test(version: str, *, jobs: int, extra: Sequence[str]) -> Result:
    """Run the suites of a Python."""
    home = OUT / version
    try:
        python = find(version)
        if isinstance(python, str):
            return Result(version, note=python)
        own = _environment(home / "env", python)
    except SystemExit as error:  # a command has failed, and said so
        return Result(version, note=f"could not be made ({error.code})")
    xml, log = home / "tests.xml", home / "tests.log"
    xml.unlink(missing_ok=True)
    command = [*python.prefix, own, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={xml}"]
    command += ["--numprocesses", str(jobs), *SUITES[version], *extra]
    print(f"Python {version}: testing; see {log}", file=sys.stderr, flush=True)
    start = time.monotonic()
    # Each Python tests itself.
    env = {name: value for name, value in os.environ.items() if name != "OVERLAY_TEST_PYTHON"}
    with log.open("w") as output:
        status = subprocess.run(
            command, cwd=ROOT, env=env, check=False, stdout=output, stderr=subprocess.STDOUT
        ).returncode
    try:
        counts = junit.count(junit.read(xml))
    except junit.RecordError:
        counts = {}
    note = judge(status, counts)
    seconds = time.monotonic() - start
    return Result(version, python, counts, note and f"{note}; see {log}", seconds)


def find(version: str) -> Python | str:
    """Find an interpreter, or make a root that has it.

    Args:
        version: The Python, "3.14".

    Returns:
        The interpreter; why there is none.

    Raises:
        SystemExit: if a root cannot be made.
    """
    for source, path in _candidates(version):
        release = _release([path], version)
        if release:
            return Python(path, release, source)
    lack = roots.missing()
    if lack:
        return f"no python{version} here; {lack}"
    root = OUT / version / "root"
    roots.make(version, root)
    prefix = tuple(roots.enter(root))
    installed = f"/usr/bin/python{version}"
    release = _release([*prefix, installed], version)
    if release is None:
        return f"{root} has no {installed}"
    return Python(installed, release, "debootstrap", prefix)


def _candidates(version: str) -> Iterator[tuple[str, Path]]:
    """Give the interpreters that may be a Python, with where each is from, the nearest first."""
    name = f"python{version}"
    found = shutil.which(name)
    if found:
        yield "PATH", Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path("~/.pyenv").expanduser())
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")):
        yield "pyenv", path
    store = OUT / "uv"
    uv = tools.interpreter("lint", "test").with_name("uv")
    env = {**os.environ, "UV_PYTHON_INSTALL_DIR": str(store), "UV_PYTHON_INSTALL_BIN": "0"}
    # It fails where its downloads cannot be reached: then the Python is not to be had from uv.
    install: list[str | Path] = [uv, "python", "install", "--quiet", version]
    subprocess.run(install, env=env, check=False, stderr=subprocess.DEVNULL)
    for path in sorted(store.glob(f"cpython-{version}.*/bin/{name}")):
        yield "uv", path


def _release(command: Sequence[str | Path], version: str) -> str | None:
    """Ask an interpreter for its version; None if it is another, or cannot make environments."""
    asked = [*command, "-c", _ASK]
    process = subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True)
    release = process.stdout.strip()
    whole = process.returncode == 0 and release.startswith(f"{version}.")
    return release if whole else None


def _environment(home: Path, python: Python) -> Path:
    """Make an environment with what the tests need, unless it is there.

    Returns:
        Its interpreter.

    Raises:
        SystemExit: if it cannot be made.
    """
    wanted = tools.requirements("test")
    made_of = [str(python.path), python.release, *wanted]
    own = home / "bin" / "python"
    if not tools.is_complete(home, made_of):
        print(f"Python {python.release}: making its environment", file=sys.stderr)
        tools.run([*python.prefix, python.path, "-m", "venv", "--clear", home])
        tools.run([*python.prefix, own, "-m", "pip", "install", "--quiet", *wanted])
        tools.complete(home, made_of)
    return own
