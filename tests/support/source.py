"""Copies of this project's source tree with the small queue, built by real front ends."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.wheel import from_wheel
from build_hooks.files import sha256
from build_hooks.outputs import lock
from build_hooks.queues.reader import load
from tests.support import stand_in

ROOT = Path(__file__).parent.parent.parent
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore")
_DIRECTORIES = ("build_hooks", "overlay/vllm_nemo")
_ACTIVATION = ("overlay/vllm_nemo.pth", "overlay/vllm_nemo.start")
# Inherited settings that could change what a build does.
_SCRUBBED = ("NRL_", "HATCH_", "PYTHON", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH", "TZ", "LC_")


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
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_SCRUBBED)}
        setting = {"NRL_VLLM_BASE": str(self.wheel() if base is None else base)}
        return subprocess.run(
            command,
            env={**inherited, **setting, **(env or {})},
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


def copy_project(directory: Path) -> Path:
    """Copy the project without its own queue, and return the copy's root."""
    root = directory / "source"
    for name in (*_FILES, *_ACTIVATION):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for name in _DIRECTORIES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    # The logic of the queue's patches goes with the queue.
    for path in (root / "overlay" / "vllm_nemo" / "patches").iterdir():
        if path.name not in ("__init__.py", "shared"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


def make(directory: Path) -> Tree:
    """Copy the project and give it the small queue, locked."""
    root = copy_project(directory)
    overlay = stand_in.write_queue(root / "overlay")
    wheels = directory / "cache" / "vllm-nemo" / "wheels"
    loaded = load(overlay)
    for release in stand_in.RELEASES:
        path = stand_in.write_wheel(wheels, release)
        assert loaded.patches[0].needed(Version(release))
        made = assemble(loaded, from_wheel(path))
        lock.write(overlay, made, {path.name: sha256(path.read_bytes())})
    return Tree(root, wheels)
