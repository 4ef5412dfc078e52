"""Runs the static checks, all of them or those that are named, and tells how each ended.

pre-commit runs them one by one (.pre-commit-config.yaml), and ci/test runs pre-commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness import tools
from harness.tools import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKS = ("ruff-check", "ruff-format", "mypy", "hadolint", "queue", "actionlint", "zizmor")


def main() -> int:
    """Run the checks that the command line names (``ci/lint``); return the exit status."""
    parser = argparse.ArgumentParser(prog="ci/lint", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        default=CHECKS,
        help=f"of {', '.join(CHECKS)} (default: all)",
    )
    names = parser.parse_args().names
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    python = tools.interpreter("lint", "test")
    return 0 if _run_each(names, python) else 1


def command(name: str, python: Path) -> list[str | Path]:
    """Return the command of a check.

    Args:
        name: One of ``CHECKS``.
        python: The tools' interpreter, beside which the programs lie.

    Returns:
        The command; an empty one where this tree has nothing to check, as an unpacked sdist has no
        workflows.
    """
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    commands: dict[str, list[str | Path]] = {
        "ruff-check": [python, "-m", "ruff", "check", "."],
        "ruff-format": [python, "-m", "ruff", "format", "--check", "."],
        "mypy": [python, "-m", "mypy"],
        "hadolint": [python.with_name("hadolint"), "Dockerfile"],
        "queue": [python, "-m", "build_hooks", "lint"],
        "actionlint": [python.with_name("actionlint")],
        "zizmor": [python.with_name("zizmor"), "--quiet", "--offline", "--persona", "pedantic"],
    }
    if name in ("actionlint", "zizmor"):
        return [*commands[name], *workflows] if workflows else []
    return commands[name]


def _run_each(names: Sequence[str], python: Path) -> bool:
    """Run checks, print how each ended, and tell whether all passed."""
    failed = False
    for name in names:
        words = command(name, python)
        if not words:
            print(f"{name}: nothing to check", flush=True)
            continue
        status = subprocess.run(words, cwd=ROOT, check=False).returncode
        print(f"{name}: {'passed' if status == 0 else f'failed ({status})'}", flush=True)
        failed |= status != 0
    return not failed


def run_all(python: Path) -> None:
    """Run all checks; in a git checkout through pre-commit, which is proven to pass thereby.

    Raises:
        SystemExit: if one fails.
    """
    if not is_checkout():
        print("no git checkout: the checks run without pre-commit", file=sys.stderr)
        if not _run_each(CHECKS, python):
            sys.exit(1)
        return
    # The hooks take the python3 of PATH, and pre-commit writes into the home directory.
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    env = {**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(BUILD / "pre-commit")}
    tools.run([python, "-m", "pre_commit", "run", "--all-files"], env=env)


def is_checkout() -> bool:
    """Whether the project's root is that of a git checkout, which pre-commit needs."""
    git = shutil.which("git")
    if git is None:
        return False
    asked = [git, "rev-parse", "--show-toplevel"]
    told = subprocess.run(asked, cwd=ROOT, check=False, capture_output=True, text=True)
    return told.returncode == 0 and Path(told.stdout.rstrip("\n")).resolve() == ROOT
