"""The commands of ci/: they agree with the queue, refuse nonsense, and build from nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.environments import MATRIX

from build_hooks.project import Project
from build_hooks.queues import reader
from tests.support import source

CI = source.ROOT / "ci"


def run(
    script: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, env=env, check=False
    )


def test_the_matrix_is_of_the_supported_releases():
    queue = reader.load(Project.here().queue)
    assert list(MATRIX["release"]) == [str(release) for release in queue.releases]
    assert set(MATRIX["default"]) <= set(MATRIX["release"])
    for needs in MATRIX["release"].values():
        assert needs["torch"].startswith("torch==")
    ids = {patch.id for patch in queue.patches}
    assert {patch for group in MATRIX["together"].values() for patch in group} <= ids


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("env", ["0.1.0"]),
        ("env", ["0.29.0", "0.1.0"]),
        ("image", ["--vllm", "0.1.0"]),
        ("matrix", ["0.1.0"]),
        ("test", ["--vllm", "0.1.0"]),
        ("two-node", ["--vllm", "0.1.0"]),
    ],
)
def test_an_unknown_release_is_refused_before_anything_is_made(script, arguments):
    process = run(CI / script, *arguments)
    assert process.returncode == 2
    assert "not in ci/matrix.toml: 0.1.0; there are 0.25.0, " in process.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("matrix", ["--only", "no-such-patch"], "no such patch: no-such-patch; there are eagle3"),
        ("pythons", ["3.10", "3.1"], "no such Python: 3.1; there are 3.10, 3.11, "),
        ("lint", ["mypy", "no-such-check"], "no such check: no-such-check; there are ruff-check, "),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_made(script, arguments, said):
    process = run(CI / script, *arguments)
    assert process.returncode == 2
    assert said in process.stderr


def test_build_on_a_machine_with_nothing_but_python(original: source.Tree, tmp_path):
    tree = original.copy(tmp_path / "tree")
    shutil.copytree(CI, tree.root / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    # Python 3.10 has no tomllib; there pip brings it.
    without = ["--without-pip"] if sys.version_info >= (3, 11) else []
    make = [sys.executable, "-m", "venv", *without, tmp_path / "bare"]
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
    said = [line.strip() for line in process.stderr.splitlines()]
    row = said.index("head   not-needed")
    assert said[row + 1] == "Upstream returns a float."
