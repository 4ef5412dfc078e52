"""ci/pythons: which interpreter it takes, how it judges a run, and what a root is entered with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import junit, pythons, roots, tools

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.10" if HERE != "3.10" else "3.11"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give an empty PATH and a pyenv without Pythons; uv has nothing, and no root can be made."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(pythons, "OUT", tmp_path / "out")
    monkeypatch.setattr(tools, "interpreter", lambda *_: tmp_path / "bin" / "python")
    monkeypatch.setattr(roots, "missing", lambda: "a Debian root needs debootstrap")
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_python_of_path_is_taken(nowhere):
    path = script(nowhere / "bin" / f"python{HERE}", f'exec {sys.executable} "$@"')
    found = pythons.find(HERE)
    assert isinstance(found, pythons.Python)
    assert (found.path, found.source) == (path, "PATH")
    assert found.release == ".".join(map(str, sys.version_info[:3]))


def test_what_only_looks_like_a_python_is_passed_over(nowhere):
    """A shim of pyenv for a version that is not chosen; a name that lies about the version."""
    script(nowhere / "bin" / f"python{HERE}", "exit 127")
    inner = nowhere / "pyenv" / "versions" / f"{HERE}.1" / "bin" / f"python{HERE}"
    script(inner, f'exec {sys.executable} "$@"')
    script(nowhere / "bin" / f"python{OTHER}", f'exec {sys.executable} "$@"')
    found = pythons.find(HERE)
    assert isinstance(found, pythons.Python)
    assert (found.path, found.source) == (inner, "pyenv")
    told = pythons.find(OTHER)
    assert told == f"no python{OTHER} here; a Debian root needs debootstrap"


def test_a_python_that_is_not_to_be_had_fails_the_run(nowhere, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ci/pythons", OTHER])
    assert pythons.main() == 1
    assert f"no python{OTHER} here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "counts", "wrong"),
    [
        (0, {junit.PASSED: 3, junit.SKIPPED: 1}, ""),
        (1, {junit.PASSED: 3, junit.FAILED: 1}, "failed"),
        (0, {junit.SKIPPED: 3}, "no test passed"),
        (0, {}, "no test passed"),
        (5, {}, "pytest ended with 5"),
        (-9, {junit.PASSED: 3}, "pytest ended with -9"),
    ],
)
def test_a_run_is_good_only_if_tests_passed_and_pytest_says_so(status, counts, wrong):
    assert pythons.judge(status, counts) == wrong


def test_the_table_has_a_row_for_each_python():
    python = pythons.Python("/usr/bin/python3.15", "3.15.2", "debootstrap")
    ran = pythons.Result("3.15", python, {junit.PASSED: 5, junit.FAILED: 1}, "failed", 3.6)
    header, rows = pythons.table([ran, pythons.Result("3.14", note="no python3.14 here")])
    assert [dict(zip(header, row, strict=True)) for row in rows] == [
        {
            "Python": "3.15.2",
            "from": "debootstrap",
            "suites": "activation",
            "passed": "5",
            "failed": "1",
            "skipped": "0",
            "seconds": "4",
            "outcome": "failed",
        },
        {
            "Python": "3.14",
            "from": "-",
            "suites": "unit activation wheel",
            "passed": "0",
            "failed": "0",
            "skipped": "0",
            "seconds": "0",
            "outcome": "no python3.14 here",
        },
    ]


def test_every_python_of_the_classifiers_is_tested():
    classifiers = tools.read_toml(tools.ROOT / "pyproject.toml")["project"]["classifiers"]
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in classifiers if c.startswith(f"{prefix}3.")]
    assert [v for v, suites in pythons.SUITES.items() if suites == pythons.QUICK] == named


@pytest.mark.skipif(roots.missing() is not None, reason=str(roots.missing()))
def test_a_root_sees_the_project_and_the_mounts_end_with_the_command(tmp_path):
    """The root here is this machine itself, bound elsewhere: debootstrap takes most of a minute."""
    for name in ("bin", "lib", "lib64", "usr"):
        if Path("/", name).is_symlink():
            (tmp_path / name).symlink_to(Path("/", name).readlink())
    for name in ("dev", "etc", "proc", "tmp", "usr"):
        (tmp_path / name).mkdir(exist_ok=True)
    bind = 'mount --bind /usr "$1/usr" && shift && exec "$@"'
    outer = ["unshare", "--mount", "--propagation", "private", "sh", "-c", bind, "sh", tmp_path]
    code = f'test -e ci/pythons && test -e /proc/self && test ! -e {tmp_path} && pwd && echo "$@"'
    command = [*outer, *roots.enter(tmp_path), "sh", "-c", code, "sh", "an argument", "*"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told == f"{tools.ROOT}\nan argument *\n"
    assert not list((tmp_path / "proc").iterdir())
    assert not (tmp_path / str(tools.ROOT)[1:] / "ci").exists()
