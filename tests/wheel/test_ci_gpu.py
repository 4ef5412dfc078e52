"""ci/gpu without a GPU: what it refuses, and how it tells of tests that fail, skip and pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import packaging
import pytest

from tests.support import installed, source, stand_in

SCRIPT = source.ROOT / "ci" / "gpu"
PASSED, FAILED, UNFIT, NOTHING = 0, 1, 2, 3
# Of which torch and vLLM there is just what the probe asks.
TORCH = """\
__version__ = "2.13.0+stand.in"


class cuda:
    is_available = staticmethod(lambda: False)
"""
PLATFORMS = """\
class StandIn:
    is_cuda = staticmethod(lambda: False)


current_platform = StandIn()
"""
REASON = (
    "no CUDA for vLLM 0.29.0: torch 2.13.0+stand.in sees 0 CUDA devices, vLLM's platform is StandIn"
)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        # Wide enough for a test's name.
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def add_what_the_probe_asks(environment: installed.Interpreter) -> None:
    """Write torch and vLLM's platform; the probe compares versions with the real packaging."""
    stand_in.write(
        environment.site_packages, {"torch.py": TORCH, "vllm/platforms/__init__.py": PLATFORMS}
    )
    real = Path(packaging.__file__).parent
    shutil.copytree(real, environment.site_packages / "packaging")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> installed.Interpreter:
    """Give an environment that has the overlay and no GPU."""
    environment = installed.install(tmp_path_factory.mktemp("gpu") / "environment")
    add_what_the_probe_asks(environment)
    return environment


def refused(*arguments: str | Path) -> str:
    process = run("--offline", *arguments)
    assert process.returncode == UNFIT
    assert process.stdout == ""
    return process.stderr


def test_what_cannot_be_tested_is_refused(environment, tmp_path):
    assert "is not an interpreter" in refused(tmp_path / "python")
    bare = installed.make(tmp_path / "bare")
    assert "has no vLLM" in refused(bare.python)
    installed.write_vllm(bare.site_packages)
    assert "has no overlay" in refused(bare.python)
    assert "is not a file" in refused(bare.python, "--wheel", tmp_path / "overlay.whl")


def test_an_overlay_that_does_not_hold_is_refused(tmp_path):
    edited = installed.install(tmp_path / "edited")
    edited.served("vllm/models.py").write_text("ORIGIN = 'edited'\n")
    said = refused(edited.python)
    assert "the overlay does not hold there" in said
    assert "vllm/models.py" in said


def test_a_wheel_is_installed_first(tmp_path):
    bare = installed.make(tmp_path / "bare")
    installed.write_vllm(bare.site_packages)
    add_what_the_probe_asks(bare)
    process = run("--offline", bare.python, "--wheel", installed.wheel())
    assert process.returncode == NOTHING, process.stderr


def test_nothing_but_skips_proves_nothing(environment):
    process = run("--offline", environment.python)
    assert process.returncode == NOTHING, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0].split() == ["test", "outcome", "seconds"]
    rows = lines[2 : lines.index("")]
    tests = [line for line in rows if not line.startswith(" ")]
    assert len(tests) > 20
    assert all(" skipped " in line for line in tests)
    assert [line for line in rows if line.startswith(" ")] == [f"    {REASON}"] * len(tests)
    assert f"0 passed, 0 failed, {len(tests)} skipped" in lines[-2]
    assert lines[-1] == "Every test was skipped: nothing was proven."


def test_what_passes_and_what_fails(environment, tmp_path):
    more = tmp_path / "test_more.py"
    more.write_text("def test_right(): pass\n")
    process = run("--offline", "--json", environment.python, "--", more)
    assert process.returncode == PASSED, process.stderr
    summary = json.loads(process.stdout)
    assert (summary["passed"], summary["failed"], summary["status"]) == (1, 0, PASSED)
    assert summary["skipped"] == len(summary["tests"]) - 1 > 20

    more.write_text("def test_wrong(): assert 1 == 2, 'because'\n")
    process = run("--offline", "--json", environment.python, "--", more)
    assert process.returncode == FAILED
    (wrong,) = (t for t in json.loads(process.stdout)["tests"] if t["outcome"] == "failed")
    assert wrong["test"] == "test_wrong"  # pytest names no module outside of its root
    assert "because" in wrong["reason"]


def test_a_run_that_ends_early_is_a_failure(environment):
    process = run("--offline", "--json", environment.python, "--", "--no-such-option")
    assert process.returncode == FAILED
    assert json.loads(process.stdout)["tests"] == [
        {"test": "pytest", "outcome": "failed", "seconds": 0.0, "reason": "ended with status 4"}
    ]
