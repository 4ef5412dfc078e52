"""A manifest made to lead elsewhere, damaged metadata, and .pth files before and after ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import installed

ORIGIN = "import vllm.models; print(vllm.models.ORIGIN)"
GUARD = "from vllm_nemo._overlay.guard import check; check()"


def doctor(environment: installed.Interpreter, **options: Any) -> dict[str, str]:
    """Return what does not hold, and why."""
    process = environment.run("-m", "vllm_nemo", "doctor", "--json", **options)
    checks = json.loads(process.stdout)["checks"]
    return {check["name"]: check["detail"] for check in checks if check["state"] == "fail"}


# The manifest.

EVIL = "ORIGIN = 'evil'\n"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vllm.models", "../../../evil.py"),
        ("vllm.models", "vllm/../../../evil.py"),
        ("vllm.models", "/{}/evil.py"),
        ("vllm.models", "vllm/models.py/../../../../evil.py"),
        ("vllm.models", "VLLM/models.py"),
        ("vllm.../../evil", "vllm///////evil.py"),
        ("vllm./evil", "vllm//evil.py"),
        ("vllm.a/b", "vllm/a/b.py"),
        ("vllm.a\\b", "vllm/a\\b.py"),
        ("vllm.\0", "vllm/\0.py"),
        ("vllm.", "vllm/.py"),
        ("os", "os.py"),
        ("vllm_nemo._overlay.api", "vllm_nemo/_api.py"),
    ],
)
def test_a_manifest_that_points_outside(own: installed.Interpreter, name: str, path: str) -> None:
    (own.root / "evil.py").write_text(EVIL)
    file = own.file("vllm_nemo/manifest.json")
    manifest = json.loads(file.read_text())
    entry = manifest["modules"].pop("vllm.models")
    entry |= {"path": path.format(own.root), "served": installed.sha256(EVIL)}
    manifest["modules"][name] = entry
    file.write_text(json.dumps(manifest))
    for code in (ORIGIN, GUARD, "import vllm_nemo; vllm_nemo.require('first')"):
        error = own.fails("-c", code)
        assert "OverlayError" in error
        assert "manifest.json cannot be used" in error
        assert "path: is" in error
    assert set(doctor(own)) == {"overlay"}


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, '{"format": 1e999}', "\ufeff{}"])
def test_a_manifest_that_no_reader_likes(own: installed.Interpreter, text: str) -> None:
    own.file("vllm_nemo/manifest.json").write_text(text, encoding="utf-8")
    error = own.fails("-c", ORIGIN)
    assert "OverlayError" in error
    assert "manifest.json cannot be used" in error


def test_a_served_file_that_is_a_link_serves_its_content_or_nothing(
    own: installed.Interpreter,
) -> None:
    """uv links files by choice, so a link is no fault; what it leads to must be what was built."""
    served, elsewhere = own.served("vllm/models.py"), own.root / "elsewhere.py"
    served.replace(elsewhere)
    served.symlink_to(elsewhere)
    assert own.prints("-c", ORIGIN) == "served"
    elsewhere.write_text(EVIL)
    assert f"{served} is changed since it was built" in own.fails("-c", ORIGIN)
    assert "served files" in doctor(own)


# What other distributions leave in site-packages.


def test_damaged_metadata_of_others_keep_nothing_from_being_said(
    own: installed.Interpreter,
) -> None:
    for number, record in enumerate(
        (b"\xff\xfe", b'"' * 200_000, b"vllm/\0.py,sha256=AAAA,1\n", b"../" * 90 + b"vllm/x.py,,\n")
    ):
        info = own.file(f"other{number}-1.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(installed.metadata(f"other{number}", "1"))
        (info / "RECORD").write_bytes(record)
        (info / "top_level.txt").write_bytes(b"\xff")
    assert doctor(own) == {}
    own.file("vllm/models.py").write_text(EVIL)
    error = own.fails("-c", ORIGIN)
    assert "OverlayError" in error
    assert "vLLM 0.29.0 (vllm 0.29.0)" in error


def test_a_record_that_leads_away_is_not_followed(own: installed.Interpreter) -> None:
    """To hash an endless file would take for ever, and to name a secret one would tell of it."""
    (record,) = own.site_packages.glob("vllm-*.dist-info/RECORD")
    digest = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    (own.root / "secret.py").write_text(EVIL)
    os.mkfifo(own.root / "pipe.py")
    for path in ("vllm/../../../../secret.py", "vllm/../../../../pipe.py"):
        with record.open("a") as file:
            file.write(f"{path},{digest},0\n")
        assert own.file(path).exists()
    assert doctor(own) == {}


# .pth files.

BEFORE, AFTER = "a_first.pth", "z_last.pth"


def test_vllm_imported_before_the_overlay_is_there(own: installed.Interpreter) -> None:
    own.file(BEFORE).write_text("import vllm.models\n")
    assert set(doctor(own)) == {"early imports", "imports", "loaded modules"}
    for code in (GUARD, "import vllm.plain", "import vllm_nemo; vllm_nemo.require('first')"):
        error = own.fails("-c", code)
        assert "OverlayError" in error
        assert "Import vllm_nemo before anything that imports vLLM" in error
    # As the doctor advises.
    own.file(BEFORE).write_text("import vllm_nemo; import vllm.models\n")
    assert own.prints("-c", f"{ORIGIN}; {GUARD}") == "served"


def test_vllm_imported_after_the_overlay_is_there(own: installed.Interpreter) -> None:
    own.file(AFTER).write_text("import vllm.models\n")
    assert own.prints("-c", f"{ORIGIN}; {GUARD}") == "served"
    # It is served, and still every interpreter pays for vLLM.
    assert set(doctor(own)) == {"early imports"}


@pytest.mark.parametrize("name", [BEFORE, AFTER])
@pytest.mark.parametrize("line", ["import nothing_of_this_name", "import sys; 1 / 0", "import (\n"])
def test_a_pth_file_that_fails_takes_no_other_with_it(
    own: installed.Interpreter, name: str, line: str
) -> None:
    own.file(name).write_text(f"{line}\n")
    assert own.prints("-c", f"{ORIGIN}; {GUARD}") == "served"
    assert doctor(own) == {}


TAKEN_AWAY = {
    "removed": "import sys; sys.meta_path[:] = [f for f in sys.meta_path"
    " if type(f).__module__ != 'vllm_nemo']",
    "in front": "import sys; from importlib.machinery import PathFinder;"
    " sys.meta_path.insert(0, PathFinder)",
}


@pytest.mark.parametrize("how", TAKEN_AWAY)
def test_a_pth_file_after_ours_that_takes_it_away(own: installed.Interpreter, how: str) -> None:
    own.file(AFTER).write_text(f"{TAKEN_AWAY[how]}\n")
    process = own.run("-c", f"{ORIGIN}; {GUARD}")
    assert (process.returncode, process.stdout.strip()) == (1, "stock")
    assert "OverlayError" in process.stderr
    failed = doctor(own)
    assert failed
    assert set(failed) <= {"this process", "new process", "imports"}


@pytest.mark.parametrize("name", [BEFORE, AFTER])
def test_a_pth_file_with_another_vllm(
    own: installed.Interpreter, tmp_path: Path, name: str
) -> None:
    installed.write(tmp_path / "other", dict.fromkeys(installed.STOCK, EVIL))
    own.file(name).write_text(f"import sys; sys.path.insert(0, {str(tmp_path / 'other')!r})\n")
    error = own.fails("-c", ORIGIN)
    assert f"at {tmp_path}/other/vllm does not match" in error
    assert "vllm" in doctor(own)


def test_a_directory_of_the_user_is_not_read_by_others(
    own: installed.Interpreter, tmp_path: Path
) -> None:
    """A user's own site directory comes later than the environment's, and `-I` leaves it out."""
    config = own.root / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = false", "packages = true"))
    env = {"PYTHONUSERBASE": str(tmp_path / "user")}
    user = Path(own.prints("-m", "site", "--user-site", env=env))
    installed.write(user, {"vllm/__init__.py": EVIL, "a.pth": "import vllm\n"})
    for flags in ([], ["-I"], ["-s"]):
        assert own.prints(*flags, "-c", f"{ORIGIN}; {GUARD}", env=env) == "served"
