"""What is in the wheel: exactly what the design says, and it works where it is installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.parser import HeaderParser
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support import installed, source, stand_in

INFO = "vllm_nemo-0.29.0.1.dist-info"


@pytest.fixture
def archive(built: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built) as archive:
        yield archive


def text(archive: zipfile.ZipFile, name: str) -> str:
    return archive.read(name).decode()


def test_the_files_are_these_and_no_other(archive: zipfile.ZipFile, original: source.Tree) -> None:
    package = original.root / "overlay"
    run_time = {
        path.relative_to(package).as_posix()
        for path in (package / "vllm_nemo").rglob("*")
        if path.suffix in (".py", ".typed", ".dat")
    }
    assert {"vllm_nemo/__init__.py", "vllm_nemo/py.typed"} < run_time
    assert set(archive.namelist()) == run_time | {
        "vllm_nemo.pth",
        "vllm_nemo/manifest.json",
        "vllm_nemo/_modules/vllm/engine/__init__.py",
        "vllm_nemo/_modules/vllm/models.py",
        "vllm_nemo/_modules/vllm/scaling.py",
        f"{INFO}/METADATA",
        f"{INFO}/RECORD",
        f"{INFO}/WHEEL",
        f"{INFO}/entry_points.txt",
        f"{INFO}/licenses/LICENSE",
        f"{INFO}/licenses/vllm/LICENSE",
        f"{INFO}/sboms/vllm-nemo.cdx.json",
    }
    assert not [name for name in archive.namelist() if name.startswith("vllm/")]
    for name in run_time | {"vllm_nemo.pth"}:
        assert archive.read(name) == (package / name).read_bytes()


def test_names_dates_and_modes_are_settled(archive: zipfile.ZipFile) -> None:
    for info in archive.infolist():
        assert info.date_time == (2020, 2, 2, 0, 0, 0)
        assert info.external_attr >> 16 & 0o777 == 0o644


def test_the_metadata(archive: zipfile.ZipFile) -> None:
    headers = HeaderParser().parsestr(text(archive, f"{INFO}/METADATA"))
    assert (headers["Name"], headers["Version"]) == ("vllm-nemo", "0.29.0.1")
    assert headers.get_all("Requires-Dist") == ["vllm==0.29.0"]
    assert headers["Requires-Python"] == ">=3.10"
    assert headers["License-Expression"] == "Apache-2.0"
    assert "Dynamic" not in headers
    tags = HeaderParser().parsestr(text(archive, f"{INFO}/WHEEL"))
    assert tags.get_all("Tag") == ["py3-none-any"]
    assert tags["Root-Is-Purelib"] == "true"


def test_the_entry_points(archive: zipfile.ZipFile) -> None:
    points = ConfigParser()
    points.read_string(text(archive, f"{INFO}/entry_points.txt"))
    assert {section: dict(points[section]) for section in points.sections()} == {
        "console_scripts": {"vllm-nemo": "vllm_nemo._overlay.cli:main"},
        "vllm.general_plugins": {"vllm_nemo": "vllm_nemo._overlay.guard:check"},
        "pyinstaller40": {"hook-dirs": "vllm_nemo._overlay.freezing:hook_directories"},
    }


def test_both_licences(archive: zipfile.ZipFile) -> None:
    assert archive.read(f"{INFO}/licenses/LICENSE") == (source.ROOT / "LICENSE").read_bytes()
    assert text(archive, f"{INFO}/licenses/vllm/LICENSE") == "The stand-in's licence.\n"


def test_the_record_tells_every_file(archive: zipfile.ZipFile) -> None:
    rows = {row[0]: row[1:] for row in csv.reader(text(archive, f"{INFO}/RECORD").splitlines())}
    assert set(rows) == set(archive.namelist())
    for name in set(rows) - {f"{INFO}/RECORD"}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
        assert rows[name] == [
            f"sha256={digest.decode().rstrip('=')}",
            str(archive.getinfo(name).file_size),
        ]


def test_the_manifest_tells_the_served_files(archive: zipfile.ZipFile) -> None:
    manifest = json.loads(archive.read("vllm_nemo/manifest.json"))
    assert manifest["overlay"] == "0.29.0.1"
    assert manifest["base"] == {
        "distribution": "vllm",
        "version": "0.29.0",
        "release": "0.29.0",
        "locked": True,
    }
    served = {f"vllm_nemo/_modules/{m['path']}": m for m in manifest["modules"].values()}
    assert set(served) == {name for name in archive.namelist() if "/_modules/" in name}
    for name, module in served.items():
        assert module["served"] == hashlib.sha256(archive.read(name)).hexdigest()


def test_the_manifest_tells_every_other_file(archive: zipfile.ZipFile) -> None:
    """All but itself and the metadata, which RECORD covers."""
    told = json.loads(archive.read("vllm_nemo/manifest.json"))["files"]
    others = {n for n in archive.namelist() if "/_modules/" not in n and not n.startswith(INFO)}
    assert set(told) == others - {"vllm_nemo/manifest.json"}
    for name, digest in told.items():
        assert digest == hashlib.sha256(archive.read(name)).hexdigest()


def test_every_served_file_ends_with_the_notice(archive: zipfile.ZipFile) -> None:
    manifest = json.loads(archive.read("vllm_nemo/manifest.json"))
    for module in manifest["modules"].values():
        lines = text(archive, f"vllm_nemo/_modules/{module['path']}").splitlines()
        named = [f"#   {patch}" for patch in module["patches"]]
        assert lines[-len(named) - 1].startswith("# Changed by vllm-nemo")
        assert lines[-len(named) :] == named


def test_the_bill_of_materials(archive: zipfile.ZipFile) -> None:
    bill = text(archive, f"{INFO}/sboms/vllm-nemo.cdx.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    for component in json.loads(bill)["components"]:
        digest = hashlib.sha256(archive.read(component["name"])).hexdigest()
        assert component["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_check_wheel_contents_passes(built: Path) -> None:
    config = source.ROOT / "pyproject.toml"
    process = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", "--config", config, built],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr


# Marked as what they are.


def test_an_unlocked_build_says_so_everywhere(tree: source.Tree, tmp_path: Path) -> None:
    files = stand_in.sources("0.29.0")
    files["vllm/models.py"] += "# mine\n"
    fork = stand_in.write(tmp_path / "fork", files)
    tree.build("plain", tmp_path / "out", base=fork)
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name == "vllm_nemo-0.29.0.1+unlocked-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        manifest = json.loads(archive.read("vllm_nemo/manifest.json"))
        info = "vllm_nemo-0.29.0.1+unlocked.dist-info"
        headers = HeaderParser().parsestr(text(archive, f"{info}/METADATA"))
        bill = json.loads(archive.read(f"{info}/sboms/vllm-nemo.cdx.json"))
        assert archive.read("vllm_nemo/_modules/vllm/models.py").count(b"# mine\n") == 1
    assert manifest["overlay"] == headers["Version"] == "0.29.0.1+unlocked"
    assert bill["metadata"]["component"]["version"] == "0.29.0.1+unlocked"
    assert manifest["base"]["locked"] is False
    assert headers.get_all("Requires-Dist") == ["vllm==0.29.0"]


def test_a_patch_that_a_fork_carries_is_recorded(tree: source.Tree, tmp_path: Path) -> None:
    files = stand_in.sources("0.26.0")
    files["vllm/models.py"] = files["vllm/models.py"].replace(
        "class Head:\n    def forward(self, x):\n        return x",
        "class Head:\n    def forward(self, x):\n        return float(x)",
    )
    fork = stand_in.write_wheel(tmp_path, "0.26.0+acme", files=files, distribution="acme-vllm")
    said = tree.build("plain", tmp_path / "out", base=fork, succeeds=False)
    assert "head (0.25.0.patch): vllm/models.py: the base has this change already." in said
    tree.build("plain", tmp_path / "out", base=fork, env={"NRL_VLLM_PRESENT": "head"})
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name == "vllm_nemo-0.26.0.1+unlocked.acme-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        manifest = json.loads(archive.read("vllm_nemo/manifest.json"))
    assert [patch["outcome"] for patch in manifest["patches"]] == ["applied", "applied", "present"]
    assert manifest["base"]["distribution"] == "acme-vllm"


# Installed.


def test_the_installed_wheel_serves_the_patches(built: Path, tmp_path: Path) -> None:
    """From the builder to the run time: with the stand-in, by an interpreter of its own."""
    environment = installed.make(tmp_path / "venv")
    files = stand_in.wheel_files(stand_in.sources("0.29.0"), "0.29.0")
    stand_in.write(environment.site_packages, files)
    command = ("uv", "pip", "install", "--quiet", "--no-deps", "--python", environment.python)
    subprocess.run([sys.executable, "-m", *command, built], check=True)
    printed = environment.prints(
        "-c",
        "import vllm.models, vllm.engine, vllm_nemo\n"
        "print(vllm.models.Model().forward(-4), vllm.models.Model().scale(2))\n"
        "print(vllm.models.__file__)\n"
        "print([(p.id, p.outcome) for p in vllm_nemo.list_patches()])\n"
        "print(vllm_nemo.require('scale').switch)",
    )
    assert printed.splitlines() == [
        "2.0 6",
        str(environment.served("vllm/models.py")),
        "[('sqrt', 'applied'), ('scale', 'applied'), ('head', 'not-needed')]",
        "NRL_VLLM_SCALE",
    ]
    environment.prints("-m", "vllm_nemo", "doctor")
    environment.prints("-m", "vllm_nemo", "verify")
    stock = environment.prints(
        "-c", "import vllm.models as m; print(m.Model().scale(2))", env={"NRL_VLLM_OVERLAY": "off"}
    )
    assert stock == "4"
