"""The overlay's own files: every one that is not as it was built is found, whoever asks.

Four ask: ``doctor``, ``verify``, the guard and ``require``. What they advise repairs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.support import installed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GUARD = "import vllm.models; from vllm_nemo._overlay.guard import check; check()"
REQUIRE = "import vllm_nemo; vllm_nemo.require('first')"
ASKERS = {
    "doctor": ("-m", "vllm_nemo", "doctor"),
    "verify": ("-m", "vllm_nemo", "verify"),
    "guard": ("-c", GUARD),
    "require": ("-c", REQUIRE),
}
REINSTALL = (
    f'pip install --force-reinstall --no-deps "vllm-nemo=={installed.OVERLAY_VERSION}"'.split()
)

# The doctor starts a process of its own, which is to write no bytecode either.
ENV = {"COLUMNS": "2000", "PYTHONDONTWRITEBYTECODE": "1"}
HELPER = "vllm_nemo/patches/shared/logic.py"


def asked(environment: installed.Interpreter, asker: str, *flags: str) -> tuple[bool, str]:
    """Ask one of the four; return whether all is well, and what it says in one line."""
    process = environment.run(*flags, *ASKERS[asker], env=ENV)
    said = " ".join((process.stdout + process.stderr).split())
    return process.returncode == 0, said


def reinstall(environment: installed.Interpreter) -> None:
    """Do what the advice says, from the wheel instead of an index."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--reinstall"]
    where = ["--link-mode", "copy", "--target", environment.site_packages]
    subprocess.run([*command, *where, installed.wheel()], check=True)


@pytest.mark.parametrize("asker", ASKERS)
def test_all_is_well(shared: installed.Interpreter, asker: str) -> None:
    assert asked(shared, asker)[0], asked(shared, asker)[1]


def _edit(file: Path) -> None:
    file.write_text(file.read_text() + "# edited\n")


def _hide(file: Path) -> None:
    file.unlink()
    file.mkdir()  # root may read any file, but nobody can read a directory as one


DAMAGES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "edited": (HELPER, "changed", _edit),
    "deleted": (HELPER, "missing", os.unlink),
    "unreadable": (HELPER, "unreadable", _hide),
    "public": ("vllm_nemo/nemo_rl.py", "changed", _edit),
    "first": ("vllm_nemo/__init__.py", "changed", _edit),
    "guard": ("vllm_nemo/_overlay/guard.py", "changed", _edit),
    "finder": ("vllm_nemo/_overlay/finder.py", "changed", _edit),
    "manifest": ("vllm_nemo/_overlay/manifest.py", "changed", _edit),
    "package": ("vllm_nemo/_overlay/__init__.py", "missing", os.unlink),
    "typed": ("vllm_nemo/py.typed", "missing", os.unlink),
    "pth": ("vllm_nemo.pth", "changed", lambda file: file.write_text("import vllm_nemo # edit\n")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_as_built(own: installed.Interpreter, damage: str) -> None:
    path, state, do = DAMAGES[damage]
    do(own.file(path))
    for asker in ASKERS:
        well, said = asked(own, asker)
        assert not well, asker
        assert path.rpartition("/")[2] in said, (asker, said)
        assert state in said, (asker, said)
        assert " ".join(REINSTALL) in said, (asker, said)
    if state == "unreadable":
        own.file(path).rmdir()
    reinstall(own)
    for asker in ASKERS:
        assert asked(own, asker)[0], asker


@pytest.mark.parametrize(
    "path",
    [
        "vllm_nemo/patches/more.py",
        # Packages and compiled code come before a module of the name.
        "vllm_nemo/patches/shared/logic/__init__.py",
        "vllm_nemo/_overlay/more.so",
        "vllm_nemo/_modules/vllm/extra/more.py",
        "vllm_nemo/left.pyc",
    ],
)
def test_a_file_too_many(own: installed.Interpreter, path: str) -> None:
    file = own.file(path)
    told = file.parent if file.name == "__init__.py" else file
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    for asker in ASKERS:
        well, said = asked(own, asker)
        assert not well, asker
        assert "unexpected" in said, (asker, said)
        assert f'rm -r "{told}"' in said, (asker, said)
    subprocess.run(["rm", "-r", told], check=True)
    for asker in ASKERS:
        assert asked(own, asker)[0], asker


def test_a_frozen_program_needs_nothing_that_activates_interpreters(
    own: installed.Interpreter,
) -> None:
    """What freezes a program takes packages; the program starts no interpreter but itself."""
    own.file("vllm_nemo.pth").unlink()
    code = "import vllm_nemo, sys; {}vllm_nemo.require('first'); print('well')"
    assert "missing: vllm_nemo.pth" in own.fails("-c", code.format(""))
    assert own.prints("-c", code.format("sys.frozen = True; ")) == "well"


def test_what_nothing_imports_does_no_harm(own: installed.Interpreter) -> None:
    """What editors, file managers and network file systems leave behind."""
    for name in (".DS_Store", "api.py~", ".nfs0001", ".ipynb_checkpoints/api-checkpoint.py"):
        own.file(f"vllm_nemo/_overlay/{name}").parent.mkdir(exist_ok=True)
        own.file(f"vllm_nemo/_overlay/{name}").write_text("")
    own.prints("-m", "compileall", "-q", "-b", own.file("vllm_nemo"))
    assert own.file("vllm_nemo/_overlay/api.pyc").exists()
    own.file("vllm_nemo/_overlay/.#api.py").symlink_to("nobody@nowhere.1")
    for asker in ASKERS:
        assert asked(own, asker)[0], asker


def test_a_manifest_that_record_does_not_know(own: installed.Interpreter) -> None:
    """Someone has edited a helper, and the manifest so that it fits."""
    helper, manifest = own.file(HELPER), own.file("vllm_nemo/manifest.json")
    before = installed.sha256(helper.read_text())
    _edit(helper)
    manifest.write_text(manifest.read_text().replace(before, installed.sha256(helper.read_text())))
    for asker in ASKERS:
        well, said = asked(own, asker)
        assert not well, asker
        assert "vllm_nemo/manifest.json" in said, (asker, said)
        assert "RECORD" in said, (asker, said)
        assert " ".join(REINSTALL) in said, (asker, said)


def test_the_record_of_another_overlay(own: installed.Interpreter) -> None:
    """A wheel unpacked over another one leaves both records: one of them has to fit."""
    (info,) = own.site_packages.glob("vllm_nemo-*.dist-info")
    other = info.with_name("vllm_nemo-0.29.0.0.dist-info")
    other.mkdir()
    record = f"vllm_nemo/manifest.json,sha256={'A' * 43},1\n"
    (other / "RECORD").write_text(record)
    assert all(asked(own, asker)[0] for asker in ("verify", "require"))
    (info / "RECORD").unlink()
    assert not asked(own, "require")[0]
    # Without any record there is nothing to compare with.
    (other / "RECORD").unlink()
    assert all(asked(own, asker)[0] for asker in ("verify", "require"))


# Machinery that is gone.


@pytest.mark.parametrize(
    "name",
    ["content", "finder", "manifest", "errors", "files", "switches", "stock", "loader", "api"],
)
def test_machinery_that_is_gone_is_one_clear_error(own: installed.Interpreter, name: str) -> None:
    own.file(f"vllm_nemo/_overlay/{name}.py").unlink()
    for asker in ASKERS:
        well, said = asked(own, asker)
        assert not well, asker
        assert f"vllm_nemo/_overlay/{name}.py" in said, (asker, said)
        assert "--force-reinstall --no-deps" in said, (asker, said)
        assert f"vllm-nemo=={installed.OVERLAY_VERSION}" in said, (asker, said)


def test_the_first_import_of_vllm_sees_that_the_guard_is_gone(own: installed.Interpreter) -> None:
    """VLLM logs an entry point that it cannot load, and goes on."""
    own.file("vllm_nemo/_overlay/guard.py").unlink()
    error = own.fails("-c", "import vllm")
    assert "OverlayError" in error
    assert "missing: vllm_nemo/_overlay/guard.py" in error


def test_a_package_without_its_first_module(own: installed.Interpreter) -> None:
    """It is a namespace then, which activates nothing; what is left of the machinery says so."""
    own.file("vllm_nemo/__init__.py").unlink()
    for asker in ("doctor", "verify", "guard"):
        well, said = asked(own, asker)
        assert not well, asker
        assert "vllm_nemo/__init__.py is missing" in said, (asker, said)
        assert "--force-reinstall --no-deps" in said, (asker, said)


def test_the_doctor_loads_the_guard(own: installed.Interpreter) -> None:
    own.file("vllm_nemo/_overlay/guard.py").unlink()
    process = own.run("-m", "vllm_nemo", "doctor")
    verdict = process.stdout.splitlines()[-1]
    assert verdict == "The overlay does NOT hold: overlay files, guard."


# Bytecode.

RUN = "from vllm_nemo.patches.shared import logic; print(logic.logic())"


# Text of any length that is not that of a file.
MARKED = "MARK = 123\n#"


def stale(
    environment: installed.Interpreter, path: str, other: str, compile_: Callable[[], object]
) -> None:
    """Leave bytecode of other source text of the same length and time beside a file."""
    file = environment.file(path)
    text = file.read_text()
    assert len(other) == len(text)
    assert other != text
    for content in (other, text):
        file.write_text(content)
        os.utime(file, (1, 1))
        if content is other:
            compile_()


@pytest.mark.parametrize("mode", ["timestamp", "unchecked-hash", "checked-hash"])
@pytest.mark.parametrize("path", [HELPER, "vllm_nemo/_overlay/finder.py", "vllm_nemo/nemo_rl.py"])
def test_bytecode_of_other_content_does_not_run(
    own: installed.Interpreter, path: str, mode: str
) -> None:
    options = ("-m", "compileall", "-q", "-f", "--invalidation-mode", mode, own.file("vllm_nemo"))
    other = MARKED.ljust(len(own.file(path).read_text()), "-")
    stale(own, path, other, lambda: own.prints(*options))
    module = path.removesuffix(".py").replace("/", ".")
    code = f"import importlib; print(importlib.import_module({module!r}).MARK)"
    for flags in ((), ("--check-hash-based-pycs", "never")):
        error = own.fails("-B", *flags, "-c", code)
        assert error.rstrip().endswith("has no attribute 'MARK'"), error
        for asker in ASKERS:
            assert asked(own, asker, *flags)[0], asker


@pytest.mark.parametrize("mode", ["timestamp", "unchecked-hash", "checked-hash"])
@pytest.mark.parametrize(
    "path",
    [f"vllm_nemo/{name}.py" for name in ("__init__", "_overlay/__init__", "_overlay/content")],
)
def test_bytecode_of_other_content_of_what_python_loads_is_found(
    own: installed.Interpreter, path: str, mode: str
) -> None:
    options = ("-m", "compileall", "-q", "-f", "--invalidation-mode", mode, own.file("vllm_nemo"))
    # It has to run, so that it differs in a word of its docstring.
    other = own.file(path).read_text().replace("the", "tha", 1)
    stale(own, path, other, lambda: own.prints(*options))
    if mode == "checked-hash":
        # Python compares it with the source, unless it is told not to.
        for asker in ASKERS:
            assert asked(own, asker)[0], asker
        # The interpreter that the doctor starts has no such option, so that it is not asked.
        flags, askers = ("--check-hash-based-pycs", "never"), ("verify", "guard", "require")
    else:
        flags, askers = (), tuple(ASKERS)
    (cached,) = own.file(path).parent.glob(f"__pycache__/{own.file(path).stem}.*.pyc")
    for asker in askers:
        well, said = asked(own, asker, *flags)
        assert not well, asker
        assert f'rm -r "{cached}"' in said, (asker, said)
    cached.unlink()
    for asker in askers:
        assert asked(own, asker, *flags)[0], asker


def test_bytecode_of_other_content_in_the_package_of_another_queue(
    own: installed.Interpreter,
) -> None:
    files = {"acme/__init__.py": "", "acme/logic.py": "def logic():\n    return 1\n"}
    # A namespace, where other distributions may have their own.
    files["common/ours.py"] = ""
    installed.write(own.site_packages, {"common/theirs.py": ""})
    installed.write(own.site_packages, files)
    manifest = own.file("vllm_nemo/manifest.json")
    data = json.loads(manifest.read_text())
    data["files"] |= {path: installed.sha256(text) for path, text in files.items()}
    manifest.write_text(json.dumps(data))
    own.file(f"vllm_nemo-{installed.OVERLAY_VERSION}.dist-info/RECORD").unlink()
    for asker in ASKERS:
        assert asked(own, asker)[0], asker
    other = files["acme/logic.py"].replace("1", "2")
    compile_ = ("-m", "compileall", "-q", own.file("acme"))
    stale(own, "acme/logic.py", other, lambda: own.prints(*compile_))
    for asker in ASKERS:
        well, said = asked(own, asker)
        assert not well, asker
        assert "acme/__pycache__/logic." in said
    more = own.file("acme/more.py")
    more.write_text("")
    for asker in ASKERS:
        assert "unexpected: acme/more.py" in asked(own, asker)[1], asker
    own.file("acme/logic.py").unlink()
    for asker in ASKERS:
        assert "missing: acme/logic.py" in asked(own, asker)[1], asker


@pytest.mark.parametrize("mode", ["timestamp", "unchecked-hash", "checked-hash"])
def test_bytecode_of_the_same_content_is_well(own: installed.Interpreter, mode: str) -> None:
    options = ("-q", "--invalidation-mode", mode, "-o", "0", "-o", "2")
    own.prints("-m", "compileall", *options, own.site_packages)
    for flags in ((), ("-OO",)):
        for asker in ASKERS:
            assert asked(own, asker, *flags)[0], asker


def test_a_wheel_unpacked_over_another_one(own: installed.Interpreter) -> None:
    """All files of a wheel have one time; the one that is there has a helper of the same length."""
    file, time = own.file(HELPER), (1580601600, 1580601600)
    text = file.read_text()
    file.write_text(text.replace("as built", "not that"))
    os.utime(file, time)
    assert own.prints("-c", RUN) == "not that"
    own.prints("-m", "compileall", "-q", own.file("vllm_nemo"))
    with zipfile.ZipFile(installed.wheel()) as archive:
        archive.extractall(own.site_packages)
    os.utime(file, time)
    assert file.read_text() == text
    for asker in ASKERS:
        assert asked(own, asker)[0], asker
    assert own.prints("-c", RUN) == "as built"
