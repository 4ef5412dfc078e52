"""No file of tests is passed over: what pytest does not collect, it does not mention."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_of_tests_is_collected() -> None:
    # Every mark, also those that a run leaves out.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
    ]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    collected = {line.rpartition(":")[0] for line in process.stdout.splitlines()}
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    assert files <= collected
