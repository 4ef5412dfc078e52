"""Runs commands, and makes the environment that has the project's tools.

Everything is kept below build/.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip carries the same library
    from pip._vendor import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
_RUN = """\
import runpy, sys
sys.path[0] = sys.argv.pop(1)
runpy.run_module("build_hooks", run_name="__main__")
"""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return content


def run(
    command: Sequence[str | Path], *, read: bool = False, env: Mapping[str, str] | None = None
) -> str:
    """Run a command in the project's root.

    Args:
        command: The program and its arguments.
        read: Whether to return what it prints, in place of showing it.
        env: Its environment variables; None for those of this process.

    Returns:
        Its standard output if ``read``, else nothing.

    Raises:
        SystemExit: if the command fails; with its status.
    """
    words = [str(word) for word in command]
    output = subprocess.PIPE if read else None
    process = subprocess.run(words, cwd=ROOT, check=False, stdout=output, text=True, env=env)
    if process.returncode != 0:
        print(f"failed ({process.returncode}): {' '.join(words)}", file=sys.stderr)
        sys.exit(process.returncode if process.returncode > 0 else 1)
    return process.stdout or ""


def build_hooks(*arguments: str | Path, groups: Sequence[str] = ()) -> int:
    """Run ``python -m build_hooks`` in an environment that has what it needs.

    Args:
        arguments: The command and its arguments. Paths are relative to the current directory.
        groups: Dependency groups of pyproject.toml that the command needs.

    Returns:
        The exit status.
    """
    # With -m, a build_hooks in the current directory would come first.
    command = [interpreter(*groups), "-c", _RUN, ROOT, *arguments]
    return subprocess.run(command, check=False).returncode


def requirements(*groups: str) -> list[str]:
    """Return what the build requires, and what dependency groups of pyproject.toml do."""
    pyproject = read_toml(ROOT / "pyproject.toml")
    wanted: list[str] = list(pyproject["build-system"]["requires"])
    for group in groups:
        wanted += pyproject["dependency-groups"][group]
    return wanted


def interpreter(*groups: str) -> Path:
    """Make the environment with the build's requirements, unless it is there.

    Args:
        groups: Dependency groups of pyproject.toml to install as well.

    Returns:
        Its interpreter. pip lies beside it, and the programs of the groups.
    """
    wanted = requirements(*groups)
    home = BUILD / "-".join(["tools", *groups])
    python = home / "bin" / "python"
    if not is_complete(home, wanted):
        print(f"installing tools: {', '.join(wanted)}", file=sys.stderr)
        venv.create(home, clear=True, with_pip=True)
        run([python, "-m", "pip", "install", "--quiet", *wanted])
        complete(home, wanted)
    return python


def is_complete(home: Path, content: object) -> bool:
    """Whether an environment was made to the end, with this content."""
    try:
        found: object = json.loads((home / "complete.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found == content


def complete(home: Path, content: object) -> None:
    """Note what an environment contains, once it is whole."""
    (home / "complete.json").write_text(json.dumps(content), encoding="utf-8")
