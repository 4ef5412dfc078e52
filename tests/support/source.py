"""Copies of this project's source tree with the small queue, built by real front ends."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness import engine

from tests.support import stand_in
from tests.support.project import write_locks

ROOT = Path(__file__).parent.parent.parent
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore")
_ACTIVATION = "overlay/vllm_nemo.pth"


@dataclasses.dataclass
class Tree:
    """A source tree, and a directory with the stand-in's wheels."""

    root: Path
    wheels: Path

    def wheel(self, release: str = "0.29.0") -> Path:
        return self.wheels / f"vllm-{release}-py3-none-any.whl"

    def copy(self, directory: Path) -> Tree:
        shutil.copytree(self.root, directory)
        return Tree(directory, self.wheels)

    def edit(self, name: str, old: str, new: str) -> None:
        file = self.root / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def snapshot(self) -> dict[str, str]:
        """Return the hash of every file, but for what an interpreter caches."""
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }

    def run(
        self,
        *command: str | Path,
        base: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        umask: int = -1,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the tree; the base is the stand-in's newest wheel, or as given."""
        setting = {"NRL_VLLM_BASE": str(self.wheel() if base is None else base)}
        return subprocess.run(
            command,
            env=engine.variables(**{**setting, **(env or {})}),
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=umask,
            check=False,
        )

    def build(
        self,
        front_end: str,
        out: Path,
        *,
        base: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        umask: int = -1,
        succeeds: bool = True,
    ) -> str:
        """Build with a front end; return what it said."""
        command = [word.format(out=out) for word in FRONT_ENDS[front_end]]
        process = self.run(*command, base=base, env=env, umask=umask)
        assert (process.returncode == 0) == succeeds, process.stdout
        return process.stdout


PYTHON = sys.executable
_PIP = (PYTHON, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "{out}", ".")
_BUILD = (PYTHON, "-m", "build", "--outdir", "{out}", ".")
_UV = (PYTHON, "-m", "uv", "build", "--python", PYTHON, "--out-dir", "{out}", ".")
# "plain": without an environment of its own, which is the quickest.
FRONT_ENDS: dict[str, tuple[str, ...]] = {
    "plain": (*_PIP, "--no-build-isolation"),
    "pip": _PIP,
    "build": _BUILD,
    "build --no-isolation": (*_BUILD, "--no-isolation"),
    "build --wheel": (*_BUILD, "--no-isolation", "--wheel"),
    "build --sdist": (*_BUILD, "--no-isolation", "--sdist"),
    "uv build": _UV,
    "uv build --wheel": (*_UV, "--wheel"),
    "python -m build_hooks": (PYTHON, "-m", "build_hooks", "build", "--out", "{out}"),
}


def copy_package(root: Path) -> None:
    """Copy what the wheel has of this project, but for the logic of its patches."""
    (root / _ACTIVATION).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / _ACTIVATION, root / _ACTIVATION)
    _copy("overlay/vllm_nemo", root)
    # The logic of the queue's patches goes with the queue.
    for path in (root / "overlay" / "vllm_nemo" / "patches").iterdir():
        if path.name not in ("__init__.py", "shared"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def copy_project(directory: Path) -> Path:
    """Copy the project without its own queue, and return the copy's root."""
    root = directory / "source"
    copy_package(root)
    _copy("build_hooks", root)
    for name in _FILES:
        shutil.copyfile(ROOT / name, root / name)
    return root


def _copy(name: str, root: Path) -> None:
    shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))


def make(directory: Path) -> Tree:
    """Copy the project and give it the small queue, locked."""
    root = copy_project(directory)
    overlay = stand_in.write_queue(root / "overlay")
    wheels = directory / "cache" / "vllm-nemo" / "wheels"
    for release in stand_in.RELEASES:
        stand_in.write_wheel(wheels, release)
    write_locks(overlay, wheels, *stand_in.RELEASES)
    return Tree(root, wheels)
