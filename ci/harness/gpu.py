"""Runs the device tests on a machine with a GPU, in an environment that has vLLM.

Needs that environment's interpreter, and the overlay: installed there already, or as a wheel.
pytest runs in an environment of its own below build/, which pip fills from the package index, or
with --offline in the one that runs this script. Ends with a table; what is skipped says why.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import junit, tables, tools
from harness.tools import ROOT

PASSED, FAILED, UNFIT, NOTHING = 0, 1, 2, 3
STATUSES = """\
exit status:
  0  something ran, and nothing failed
  1  a test failed
  2  usage, no vLLM or no overlay that holds, no pytest
  3  every test was skipped: nothing was proven
"""
# What the device tests import themselves.
NEEDED = ("hypothesis", "pytest", "xdist")


def main() -> int:
    """Run the tests and print the table (``ci/gpu``); return the exit status."""
    parser = argparse.ArgumentParser(
        prog="ci/gpu",
        description=__doc__,
        epilog=STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("python", type=Path, help="the interpreter that has vLLM")
    parser.add_argument(
        "--wheel", type=Path, help="install this overlay there first; else it must be there"
    )
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, after `--`")
    options = parser.parse_args()
    # Not resolved: a virtual environment's interpreter is a link to another one.
    python = Path(os.path.abspath(options.python))  # noqa: PTH100
    if not os.access(python, os.X_OK):
        return unfit(f"{python} is not an interpreter")
    if options.wheel and not options.wheel.is_file():
        return unfit(f"{options.wheel} is not a file")
    if not has_vllm(python):
        return unfit(f"{python} has no vLLM: name the interpreter of an environment that has it")
    runner = own_pytest() if options.offline else tools.interpreter("test")
    if runner is None:
        return unfit(f"--offline needs {', '.join(NEEDED)} in {sys.executable}")
    if options.wheel and not install(python, options.wheel, runner):
        return unfit(f"{options.wheel} could not be installed for {python}")
    report = doctor(python)
    if "error" in report:
        return unfit(report["error"])
    started = time.perf_counter()
    results = run(runner, python, report["vllm"]["version"], options.pytest)
    seconds = time.perf_counter() - started
    counts = junit.count(results)
    status = FAILED if counts[junit.FAILED] else PASSED if counts[junit.PASSED] else NOTHING
    summary = {
        "overlay": report["overlay"],
        "vllm": report["vllm"]["version"],
        "python": str(python),
        "seconds": round(seconds, 1),
        **counts,
        "status": status,
        "tests": [entry(case) for case in results],
    }
    print(json.dumps(summary, indent=2) if options.json else table(summary))
    return status


def unfit(reason: str) -> int:
    """Say why nothing can be run."""
    print(f"ci/gpu: {reason}", file=sys.stderr)
    return UNFIT


def has_vllm(python: Path) -> bool:
    """Tell whether an environment has vLLM, without importing it."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    return ask(python, "-c", code).returncode == 0


def ask(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter, elsewhere than in the checkout: it has directories named as packages."""
    return subprocess.run(
        [python, *arguments], cwd="/", capture_output=True, text=True, check=False
    )


def own_pytest() -> Path | None:
    """Return the interpreter that runs this, if it has what the tests need."""
    there = all(importlib.util.find_spec(name) for name in NEEDED)
    return Path(sys.executable) if there else None


def install(python: Path, wheel: Path, runner: Path) -> bool:
    """Install the overlay, and nothing else, with the environment's pip or the tools' uv."""
    arguments = ["--no-deps", "--force-reinstall", str(wheel.resolve())]
    if ask(python, "-m", "pip", "--version").returncode == 0:
        pip = ["-m", "pip", "install", "--quiet", "--no-index"]
        command: list[str | Path] = [python, *pip, *arguments]
    else:
        uv = ["-m", "uv", "pip", "install", "--quiet", "--offline", "--python", str(python)]
        command = [runner, *uv, *arguments]
    # Standard output is for the table alone.
    return subprocess.run(command, cwd="/", check=False, stdout=sys.stderr).returncode == 0


def doctor(python: Path) -> dict[str, Any]:
    """Return what the overlay says of itself, or why it cannot be tested."""
    process = ask(python, "-m", "vllm_nemo", "doctor", "--json")
    try:
        report: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        said = process.stderr.strip().splitlines()[-1:]
        lacking = f"{python} has no overlay ({' '.join(said)}): give one with --wheel; ci/build"
        return {"error": f"{lacking} RELEASE makes it"}
    if "error" in report or report["holds"]:
        return report
    faults = [f"{c['name']}: {c['detail']}" for c in report["checks"] if c["state"] == "fail"]
    return {"error": "\n  ".join(["the overlay does not hold there:", *faults])}


def run(runner: Path, python: Path, release: str, arguments: list[str]) -> list[junit.Case]:
    """Run pytest; return its tests, and one for pytest itself if it did not get through."""
    with tempfile.TemporaryDirectory(prefix="gpu-") as scratch:
        written = Path(scratch, "results.xml")
        command: list[str | Path] = [runner, "-m", "pytest", "tests/gpu", f"--junitxml={written}"]
        # With "=": pytest would take a value that stands alone for a path, before it knows the
        # option.
        command += [f"--vllm={release.partition('+')[0]}", f"--vllm-python={python}"]
        # Two engines share the GPU; a file's tests share their engines' starts.
        command += ["--numprocesses", "2", "--dist", "loadfile"]
        ended = subprocess.run([*command, *arguments], cwd=ROOT, check=False, stdout=sys.stderr)
        try:
            results = junit.read(written)
        except junit.RecordError:
            results = []
    # 1: tests failed, and are in the record; 5: there were none.
    if ended.returncode not in (0, 1, 5) or (ended.returncode == 1 and not results):
        reason = f"ended with status {ended.returncode}"
        results.append(junit.Case("", "pytest", junit.FAILED, reason=reason))
    return sorted(results, key=lambda case: entry(case)["test"])


def entry(case: junit.Case) -> dict[str, Any]:
    """Give a test as what JSON can hold."""
    return {
        "test": "::".join(filter(None, [case.module.rpartition(".")[2], case.name])),
        "outcome": case.outcome,
        "seconds": round(case.seconds, 1),
        "reason": case.reason.strip().partition("\n")[0],
    }


def table(summary: dict[str, Any]) -> str:
    """Return the table, and under it what it comes to."""
    rows = [
        tables.Row(
            (test["test"], test["outcome"], f"{test['seconds']:.1f}"),
            [test["reason"]] if test["reason"] else [],
        )
        for test in summary["tests"]
    ]
    counts = ", ".join(f"{summary[outcome]} {outcome}" for outcome in junit.OUTCOMES)
    versions = f"vLLM {summary['vllm']}, vllm-nemo {summary['overlay']}"
    lines = [tables.render(("test", "outcome", "seconds"), rows), ""]
    lines.append(f"{versions}: {counts} in {summary['seconds']:.0f} s")
    if summary["status"] == NOTHING:
        lines.append("Every test was skipped: nothing was proven.")
    return "\n".join(lines)
