"""Data files and empty modules: in the strict format, in the lock, in the wheel, at run time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.directory import from_directory
from build_hooks.diffs.model import DiffError
from build_hooks.diffs.reader import parse
from build_hooks.errors import ConflictError
from build_hooks.outputs import manifest, naming, record, sbom, wheel
from build_hooks.outputs.content import Content
from build_hooks.outputs.report import render
from build_hooks.project import Project
from build_hooks.upkeep.trees import PatchTree
from tests.support import foreign, stand_in
from tests.support.installed import sha256


def test_only_an_added_file_has_no_hunk() -> None:
    (file,) = parse(b"--- /dev/null\n+++ b/vllm/n/__init__.py\n")
    assert (file.path, file.added, file.hunks) == ("vllm/n/__init__.py", True, ())
    with pytest.raises(DiffError, match="has no hunk"):
        parse(b"--- a/vllm/n/__init__.py\n+++ b/vllm/n/__init__.py\n")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("vllm/a.json", ""),
        ("vllm/configs/E=8,device_name=Intel(R)_[1].json", ""),
        ("vllm/a.yaml", ""),
        ("vllm/a.so", "is not a Python module, nor data"),
        ("vllm/a?.json", "has a name that not every file system can hold"),
        ("vllm/ a.json", "has a name that not every file system can hold"),
        ("vllm/a\x1b.json", "has a name that not every file system can hold"),
        ("data/a.json", "lies outside vllm/"),
    ],
)
def test_data_comes_as_new_files_of_names_that_can_be_written(path: str, told: str) -> None:
    line = "x = 1" if told else "\tx "
    text = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,1 @@\n+{line}\n".encode()
    if told:
        with pytest.raises(DiffError, match=re.escape(told)):
            parse(text)
        return
    (file,) = parse(text)
    assert file.hunks[0].new == (b"\tx \n",)
    with pytest.raises(DiffError, match="an overlay can add a data file, not change one"):
        parse(f"--- a/{path}\n+++ b/{path}\n@@ -1,1 +1,1 @@\n-x\n+y\n".encode())


CONFIG = "vllm/engine/configs/E=8,N=1,device_name=A(R)_[1].json"


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    """Import a data file, and a package with one module."""
    importer = foreign.Importer.make(tmp_path)
    text = foreign.added(CONFIG, line="{}") + foreign.added("vllm/n/m.py", line="X = 1")
    assert importer.bring(text, id="it") == 0
    return importer


def test_the_lock_has_every_file_that_is_brought(importer: foreign.Importer) -> None:
    recorded = record.record(importer.overlay())
    beside = {path: sha256(text) for path, text in foreign.BESIDE.items()}
    added = dict.fromkeys([CONFIG, "vllm/n/__init__.py", "vllm/n/m.py"])
    assert recorded["stock"] == {**beside, **added}
    assert sorted(recorded["served"]) == sorted([*beside, *added])
    assert recorded["served"][CONFIG] == sha256("{}\n")
    files = recorded["patches"]["it"]["files"]
    assert {path: entry["offsets"] for path, entry in files.items()} == {
        CONFIG: [0],
        "vllm/n/__init__.py": [],
        "vllm/n/m.py": [0],
    }


@pytest.fixture
def content(importer: foreign.Importer) -> Content:
    """Return what a wheel with this project's machinery and the imported patch is made of."""
    version, requirement = f"{foreign.RELEASE}.1+unlocked", f"vllm=={foreign.RELEASE}"
    identity = naming.Identity(version, requirement)
    return Content(Project.here(), identity, importer.overlay(), (), b"")


@pytest.fixture
def site(importer: foreign.Importer, content: Content) -> Path:
    """Write what the wheel holds beside the release, as an installer does."""
    site = importer.root / "site"
    site.mkdir()
    assert f"site/vllm_nemo/_modules/{CONFIG}" in {
        path.relative_to(importer.root).as_posix() for path in wheel.write(content, site).values()
    }
    assert "vllm/n/__init__.py: empty" in render(content)
    return stand_in.write(site, stand_in.wheel_files(foreign.FILES, foreign.RELEASE))


def _python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_manifest_and_the_bill_of_materials_list_data(content: Content) -> None:
    written = json.loads(manifest.dump(content, {}))
    data = {"stock": None, "served": sha256("{}\n"), "patches": ["it"]}
    copied = {**data, "stock": sha256("{}\n")}
    assert written["data"] == {"vllm/engine/configs/E=1.json": copied, CONFIG: data}
    assert list(written["modules"]) == ["vllm.engine.tuning", "vllm.n", "vllm.n.m"]
    components = json.loads(sbom.dump(content))["components"]
    assert f"vllm_nemo/_modules/{CONFIG}" in [component["name"] for component in components]


def test_data_in_a_wheel_is_verified(site: Path) -> None:
    verified = _python(site, "-m", "vllm_nemo", "verify")
    assert verified.returncode == 0, verified.stdout
    assert re.search(rf"{re.escape(CONFIG)} +added +ok\n", verified.stdout)
    file = site / "vllm_nemo" / "_modules" / CONFIG
    file.write_text("{} ")
    changed = _python(site, "-m", "vllm_nemo", "verify")
    assert changed.returncode == 1
    assert re.search(rf"{re.escape(CONFIG)} +added +changed\n", changed.stdout)
    doctor = json.loads(_python(site, "-m", "vllm_nemo", "doctor", "--json").stdout)
    (check,) = [check for check in doctor["checks"] if check["name"] == "served files"]
    assert check["state"] == "fail"
    assert CONFIG in check["detail"]


def test_data_that_the_installed_vllm_has_is_unexpected(site: Path) -> None:
    stand_in.write(site, {CONFIG: "{}"})
    verified = _python(site, "-m", "vllm_nemo", "verify")
    assert verified.returncode == 1
    assert f"unexpected: {CONFIG}" in verified.stdout


def test_a_module_finds_what_is_added_and_what_was_there(site: Path) -> None:
    code = "import vllm_nemo, vllm.engine.tuning as t; print(t.FOUND)"
    assert _python(site, "-c", code).stdout == f"{['E=1.json', CONFIG.rpartition('/')[2]]}\n"


def test_a_copy_is_held_against_the_installed_data(site: Path) -> None:
    stand_in.write(site, {"vllm/engine/configs/E=1.json": "[]"})
    verified = _python(site, "-m", "vllm_nemo", "verify")
    assert verified.returncode == 1
    assert "changed: vllm/engine/configs/E=1.json" in verified.stdout


def test_a_new_package_is_imported(site: Path) -> None:
    code = "import vllm_nemo, vllm.n.m; print(vllm.n.m.X, vllm.n.__doc__)"
    assert _python(site, "-c", code).stdout == "1 None\n"


def test_a_manifest_cannot_lead_out_of_the_overlay(site: Path) -> None:
    file = site / "vllm_nemo" / "manifest.json"
    content = json.loads(file.read_text())
    content["data"] = {"vllm/../../x.json": content["data"][CONFIG]}
    file.write_text(json.dumps(content))
    verified = _python(site, "-m", "vllm_nemo", "verify")
    assert verified.returncode == 1
    assert "data: 'vllm/../../x.json' is no path below vllm/" in verified.stderr


def test_a_release_that_has_the_file_by_now_is_a_conflict(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = stand_in.write(importer.root / "newer", {**foreign.FILES, CONFIG: "[]\n"})
    with pytest.raises(ConflictError, match="the patch adds this file, but it is there already"):
        assemble(importer.stack(), from_directory(newer))


def test_a_port_keeps_data(importer: foreign.Importer) -> None:
    tree = PatchTree(importer.root / "tree")
    tree.write({CONFIG: b"{}\n", "vllm/n/m.py": b"X = 2\n"}, {CONFIG: None, "vllm/n/m.py": None})
    assert tree.files() == {CONFIG: b"{}\n", "vllm/n/m.py": b"X = 2\n"}
