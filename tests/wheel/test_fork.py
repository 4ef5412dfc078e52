"""A fork that equals no release: what its builder says of it, from the setting to the doctor."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import installed, source, stand_in

VERSION = "0.0.1.dev1+gabc"
SETTINGS = {"NRL_VLLM_RELEASE": "0.26.0", "NRL_VLLM_PROVIDED": "scale"}


@pytest.fixture(scope="module")
def fork(original: source.Tree, tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    """Give an environment with a fork of 0.26.0, and the overlay that was built from it."""
    root = tmp_path_factory.mktemp("fork")
    environment = installed.make(root / "env")
    release = stand_in.sources("0.26.0")
    own = release["vllm/models.py"].replace("return 2 * x", "return 3.0 * x")
    files = stand_in.sources("0.26.0", models=own, _version=f"version = {VERSION!r}\n")
    stand_in.write(environment.site_packages, stand_in.wheel_files(files, VERSION, "acme-vllm"))
    env = {**SETTINGS, "VIRTUAL_ENV": str(environment.root)}
    original.build("python -m build_hooks", root / "dist", base="installed", env=env)
    (wheel,) = (root / "dist").iterdir()
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", str(environment.python)]
    subprocess.run([source.PYTHON, "-m", *install, wheel], check=True)
    return environment


def test_the_manifest_records_the_word_of_whoever_built_it(fork: installed.Interpreter) -> None:
    manifest = json.loads(fork.file("vllm_nemo/manifest.json").read_text())
    assert manifest["base"] == {
        "distribution": "acme-vllm",
        "version": VERSION,
        "release": "0.26.0",
        "locked": False,
    }
    patches = {patch["id"]: patch for patch in manifest["patches"]}
    assert patches["scale"]["outcome"] == "provided"
    assert patches["scale"]["reason"] == "named in NRL_VLLM_PROVIDED"
    assert patches["scale"]["files"] == []
    # Of the stated release: the newest needs no "head".
    assert {name: patch["outcome"] for name, patch in patches.items()} == {
        "sqrt": "applied",
        "scale": "provided",
        "head": "applied",
    }


def test_patches_shows_it(fork: installed.Interpreter) -> None:
    told = fork.prints("-m", "vllm_nemo", "patches")
    (line,) = [line.split() for line in told.splitlines() if line.startswith("scale ")]
    assert line[:2] == ["scale", "provided"]
    assert "named in NRL_VLLM_PROVIDED" in told


def test_the_doctor_does_not_vouch_for_it(fork: installed.Interpreter) -> None:
    told = fork.prints("-m", "vllm_nemo", "doctor")
    assert "scale  in vLLM, it is said  NRL_VLLM_SCALE (not set)" in told
    assert "The overlay holds." in told


def test_the_fork_runs_its_own_form_of_the_fix(fork: installed.Interpreter) -> None:
    code = """\
from vllm.models import Head, Model
print(Model().forward(-4), Model().scale(2), Head().forward(1))
import vllm_nemo
print(vllm_nemo.require("scale").outcome)
"""
    assert fork.prints("-c", code).split() == ["2.0", "6.0", "1.0", "provided"]


def test_without_its_release_the_build_asks_for_it(
    original: source.Tree, fork: installed.Interpreter, tmp_path: Path
) -> None:
    env = {"VIRTUAL_ENV": str(fork.root)}
    out = tmp_path / "out"
    said = original.build("python -m build_hooks", out, base="installed", env=env, succeeds=False)
    assert "say which in NRL_VLLM_RELEASE" in said
    assert not out.exists() or not list(out.iterdir())
