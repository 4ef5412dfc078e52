"""Ray workers with an interpreter, packages or a directory of their own: which vLLM they run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from harness.environments import MATRIX

from tests.support import hostile, installed
from tests.support.ray import ENVIRONMENT

SCRIPT = Path(__file__).parent / "ray_workers.py"
(RAY,) = [requirement for requirement in MATRIX["extra"] if requirement.startswith("ray==")]


def _uv(environment: installed.Interpreter, *packages: str | Path) -> list[str | Path]:
    where = ["-m", "uv", "pip", "install", "--quiet", "--python", environment.python]
    return [sys.executable, *where, *packages]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Start one Ray in an environment without the overlay, and ask a worker of each kind."""
    root = tmp_path_factory.mktemp("ray")
    overlay = installed.wheel()
    bare, good, cached = (installed.make(root / name) for name in ("bare", "good", "cached"))
    for environment in (bare, good, cached):
        installed.write_vllm(environment.site_packages)
        # The first is what Ray itself copies and installs into, by its own pip or uv.
        tools = ["pip", "uv", "virtualenv"] if environment is bare else []
        subprocess.run(_uv(environment, RAY, *tools), check=True)
    subprocess.run(_uv(good, "--no-deps", overlay), check=True)
    directory = root / "working"
    with zipfile.ZipFile(overlay) as archive:
        archive.extractall(directory / "top")
    # Ray wants an archive with one directory in it, of which it makes the workers' own.
    working = shutil.make_archive(str(root / "working"), "zip", directory)
    pip = {"packages": [str(overlay)], "pip_install_options": ["--no-deps", "--no-index"]}
    uv = {"packages": [str(overlay)], "uv_pip_install_options": ["--no-deps", "--no-index"]}
    cases = {
        "nothing": ({}, False),
        "py_executable": ({"py_executable": str(good.python)}, False),
        "pip": ({"pip": pip}, False),
        "uv": ({"uv": uv}, False),
        "working_dir": ({"working_dir": Path(working).as_uri()}, False),
        # Another environment, or Ray might give it the worker of the case before.
        "working_dir, imported first": (
            {"working_dir": Path(working).as_uri(), "env_vars": {"ANOTHER": "worker"}},
            True,
        ),
    }
    written = root / "result.json"
    arguments = {
        "cases": {name: {"runtime_env": env, "first": f} for name, (env, f) in cases.items()},
        "cached": str(cached.python),
        "install": [str(word) for word in _uv(cached, "--no-deps", overlay)],
    }
    settings = {k: v for k, v in ENVIRONMENT.items() if k.startswith("RAY_")}
    process = subprocess.run(
        [bare.python, SCRIPT, json.dumps(arguments)],
        env=hostile.environment({**settings, "SCENARIO_RESULT": str(written)}),
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-6000:]
    found = json.loads(written.read_text())
    roots = {
        str(env.root): name for env, name in ((bare, "bare"), (good, "good"), (cached, "cached"))
    }
    for answer in found.values():
        answer["prefix"] = roots.get(answer["prefix"], "of its own")
    return found


@pytest.mark.parametrize(
    ("case", "prefix"), [("py_executable", "good"), ("pip", "of its own"), ("uv", "of its own")]
)
def test_a_worker_with_the_overlay_installed_is_served(
    told: dict[str, dict[str, Any]], case: str, prefix: str
) -> None:
    """By an interpreter of another environment, or a copy of the node's that Ray installs into."""
    answer = told[case]
    assert (answer["origin"], answer["guard"], answer["prefix"]) == ("served", "passes", prefix)


def test_a_worker_without_the_overlay_runs_stock_vllm_and_has_no_guard(
    told: dict[str, dict[str, Any]],
) -> None:
    """Nothing of the overlay is there to say so: that is for the doctor to find from outside."""
    for case, prefix in (("nothing", "bare"), ("cached", "cached")):
        answer = told[case]
        assert (answer["origin"], answer["prefix"]) == ("stock", prefix)
        assert answer["guard"] == "ModuleNotFoundError"


def test_a_working_directory_is_no_site_directory(told: dict[str, dict[str, Any]]) -> None:
    answer = told["working_dir"]
    assert (answer["origin"], answer["guard"]) == ("stock", "OverlayError")
    answer = told["working_dir, imported first"]
    assert (answer["origin"], answer["guard"]) == ("served", "passes")


def test_an_environment_that_gets_the_overlay_later(told: dict[str, dict[str, Any]]) -> None:
    """Ray keeps workers: one that was started before goes on without; a new one is served."""
    before, again = told["cached"], told["cached, asked again"]
    assert again["pid"] == before["pid"]
    assert (again["origin"], again["guard"]) == ("stock", "OverlayError")
    answer = told["cached, a new worker"]
    assert answer["pid"] != before["pid"]
    assert (answer["origin"], answer["guard"]) == ("served", "passes")
