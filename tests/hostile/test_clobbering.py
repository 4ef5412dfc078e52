"""Why the overlay owns no file of vLLM's: what pip and uv make of two wheels that own one file.

The wheel ``vllm-clobber`` brings the modules that the overlay serves, as files below ``vllm/``.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support import stand_in
from tests.support.installers import NEW, STOCK, Environment

SERVED = "vllm_nemo/_modules/"
OF_STOCK, OF_A_PATCH = f"{NEW} 4", f"{NEW} 10"
REINSTALL = f"--force-reinstall --no-deps vllm=={NEW}"


@pytest.fixture
def clobber(tmp_path: Path, index: Path) -> Path:
    """Give a wheel of that name with what the newest overlay serves."""
    with zipfile.ZipFile(index / f"vllm_nemo-{NEW}.2-py3-none-any.whl") as overlay:
        served = [name for name in overlay.namelist() if name.startswith(SERVED)]
        files = {name.removeprefix(SERVED): overlay.read(name) for name in served}
    assert "vllm/models.py" in files
    return stand_in.write_wheel(tmp_path, f"{NEW}.2", files=files, distribution="vllm-clobber")


def imports(env: Environment) -> str:
    return env.interpreter.prints("-c", STOCK)


def test_two_owners_of_one_file_lose_it_without_a_word(env: Environment, clobber: Path) -> None:
    said = env.install(f"vllm=={NEW} {clobber}")
    assert "warning" not in said.lower()
    # pip installs vLLM last. uv installs both at once, and the later writer of each file wins.
    assert imports(env) in ({OF_STOCK} if env.tool == "pip" else {OF_STOCK, OF_A_PATCH})
    env.install(f"--force-reinstall --no-deps {clobber}")
    assert imports(env) == OF_A_PATCH

    env.install(REINSTALL)
    assert imports(env) == OF_STOCK
    assert env.consistent()

    env.uninstall("vllm-clobber")
    assert "No module named 'vllm.models'" in env.interpreter.fails("-c", STOCK)
    assert f"vllm-{NEW}.dist-info" in env.left()
    assert env.consistent()


def test_the_overlay_loses_nothing_by_the_same_steps(env: Environment) -> None:
    env.install(f"vllm=={NEW} vllm-nemo=={NEW}.2")
    assert imports(env) == OF_A_PATCH
    env.install(REINSTALL)
    assert imports(env) == OF_A_PATCH
    assert env.holds()
    env.uninstall("vllm-nemo")
    assert imports(env) == OF_STOCK
