"""pip and uv put the overlay in, move it and vLLM, and take them out: what holds, what is said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support import hostile
from tests.support.installers import NEW, OLD, STOCK, WORKS, Environment


def test_one_requirement_brings_vllm_and_the_newest_overlay_for_it(env: Environment) -> None:
    env.install(f'"vllm-nemo=={NEW}.*"')
    assert env.works() == f"{NEW} 2.0 10"
    assert env.holds()
    assert env.consistent()
    env.install(f'"vllm-nemo=={OLD}.*"')
    assert env.works() == f"{OLD} 2.0 6"
    assert env.holds()
    assert env.consistent()


def test_an_upgrade_of_the_overlay_leaves_nothing_of_the_old_one(
    env: Environment, tmp_path: Path, index: Path
) -> None:
    env.install(f"vllm-nemo=={NEW}.1")
    assert env.works() == f"{NEW} 2.0 6"
    vllm = env.recorded("vllm")
    env.install(f'--upgrade "vllm-nemo=={NEW}.*"')
    assert env.works() == f"{NEW} 2.0 10"
    assert env.holds()
    assert env.recorded("vllm") == vllm
    fresh = Environment(tmp_path / "fresh", env.tool, index)
    fresh.install(f"vllm-nemo=={NEW}.2")
    overlays = [each.interpreter.file("vllm_nemo") for each in (env, fresh)]
    for overlay in overlays:
        hostile.prints(["find", overlay, "-name", "*.pyc", "-delete"])
    assert hostile.contents(overlays[0]) == hostile.contents(overlays[1])
    # And back.
    env.install(f"vllm-nemo=={NEW}.1")
    assert env.works() == f"{NEW} 2.0 6"


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
def test_another_vllm_under_the_overlay_is_an_error_that_says_how_to_repair_it(
    env: Environment, tmp_path: Path, before: str, after: str
) -> None:
    env.install(f'"vllm-nemo=={before}.*"')
    env.install(f"vllm=={after}")
    assert not env.consistent()
    error = env.interpreter.fails("-c", WORKS)
    assert re.search(
        rf"vllm-nemo {before}\.\d was built for vllm {before}, and vLLM {after}", error
    )
    assert not env.holds()
    commands = re.findall(r"(?m)^  (pip install .*)$", error)
    assert commands == [f'pip install "vllm=={before}"', f'pip install "vllm-nemo=={after}.*"']
    broken = tmp_path / "broken"
    shutil.copytree(env.interpreter.site_packages, broken, symlinks=True)
    for command, release in zip(commands, (before, after), strict=True):
        shutil.rmtree(env.interpreter.site_packages)
        shutil.copytree(broken, env.interpreter.site_packages, symlinks=True)
        env.does(command if env.tool == "pip" else f"uv {command}")
        assert env.works().startswith(f"{release} 2.0 ")
        assert env.holds()
        assert env.consistent()


def test_an_edited_vllm_is_repaired_by_the_command_that_is_printed(env: Environment) -> None:
    env.install(f'"vllm-nemo=={NEW}.*"')
    file = env.interpreter.file("vllm/models.py")
    text = file.read_text()
    file.unlink()  # not in place: uv's cache is to stay as it is
    file.write_text(f"{text}# edited\n")
    error = env.interpreter.fails("-c", WORKS)
    (command,) = re.findall(r"(?m)^  (pip install --force-reinstall .*)$", error)
    env.does(command if env.tool == "pip" else f"uv {command}")
    assert file.read_text() == text
    assert env.works() == f"{NEW} 2.0 10"


def test_uninstalled_before_vllm(env: Environment) -> None:
    bare = env.left()
    env.install(f'"vllm-nemo=={NEW}.*"')
    assert env.works() == f"{NEW} 2.0 10"
    vllm = env.recorded("vllm")
    env.uninstall("vllm-nemo")
    assert env.left() - bare == {"vllm", f"vllm-{NEW}.dist-info"}
    assert env.recorded("vllm") == vllm
    assert env.interpreter.prints("-c", STOCK) == f"{NEW} 4"
    assert env.consistent()
    env.uninstall("vllm")
    assert env.left() == bare


def test_uninstalled_after_vllm(env: Environment) -> None:
    bare = env.left()
    env.install(f'"vllm-nemo=={NEW}.*"')
    assert env.works() == f"{NEW} 2.0 10"
    env.uninstall("vllm")
    assert not env.consistent()
    assert "No module named 'vllm'" in env.interpreter.fails("-c", "import vllm")
    process = env.interpreter.run("-m", "vllm_nemo", "doctor")
    assert process.returncode == 1
    assert "vLLM is not installed" in process.stdout
    # vLLM again, and the overlay is whole without a step of its own.
    env.install(f"vllm=={NEW}")
    assert env.works() == f"{NEW} 2.0 10"
    env.uninstall("vllm")
    env.uninstall("vllm-nemo")
    assert env.left() == bare


def test_a_reinstallation_gives_the_same_files(env: Environment) -> None:
    env.install(f'"vllm-nemo=={NEW}.*"')
    before = env.recorded("vllm_nemo")
    env.interpreter.served("vllm/models.py").unlink()
    error = env.interpreter.fails("-c", WORKS)
    (command,) = re.findall(r"(pip install --force-reinstall .*)$", error.strip())
    env.does(command if env.tool == "pip" else f"uv {command}")
    assert env.recorded("vllm_nemo") == before
    assert env.works() == f"{NEW} 2.0 10"
    assert env.holds()
