"""Zipped, frozen, unpacked by hand, or with less than the usual start: active, or loudly not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import hostile, installed
from tests.support.installers import NEW

SCALED = "import vllm.models; print(vllm.models.Model().scale(2))"
STOCK, PATCHED = "4", "10"
ACTIVATED = "import vllm_nemo; " + SCALED
GUARDED = SCALED + "; from vllm_nemo._overlay.guard import check; check()"


class Started:
    """A command that runs Python code, and what it may say of the overlay."""

    def __init__(self, *command: str | Path, **env: str) -> None:
        self.command, self.env = command, env

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return hostile.run([*self.command, *arguments], env=self.env, cwd=cwd)

    def prints(self, *arguments: str, cwd: Path | None = None) -> str:
        return hostile.prints([*self.command, *arguments], env=self.env, cwd=cwd)

    def fails(self, *arguments: str) -> str:
        process = self.run(*arguments)
        assert process.returncode != 0, process.stdout
        return process.stderr

    def failed_checks(self) -> set[str]:
        """Return what the doctor says does not hold."""
        process = self.run("-m", "vllm_nemo", "doctor", "--json")
        failed = {c["name"] for c in json.loads(process.stdout)["checks"] if c["state"] == "fail"}
        assert process.returncode == bool(failed)
        return failed


def wheels(index: Path) -> list[Path]:
    names = (f"vllm-{NEW}-py3-none-any.whl", f"vllm_nemo-{NEW}.2-py3-none-any.whl")
    return [index / name for name in names]


# PEX.

# What vLLM does to start its engine: a process of its own, by spawn.
CHILD = """\
import multiprocessing

def work(queue, first):
    try:
        if first:
            import vllm_nemo
        import vllm.models
        seen = vllm.models.Model().scale(2)
        from vllm_nemo._overlay.guard import check
        check()
        queue.put(seen)
    except Exception as error:
        queue.put((seen, type(error).__name__))

def ask(first):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, first))
    child.start()
    told = queue.get(timeout=60)
    child.join()
    return told
"""


@pytest.fixture(scope="module")
def pex(index: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Started]:
    """Make a PEX of each kind from vLLM and the overlay."""
    root = tmp_path_factory.mktemp("pex")
    made = {}
    env = {"PEX_ROOT": str(root / "root"), "HOME": str(root)}
    for kind, options in {"zipapp": [], "venv": ["--venv", "prepend"]}.items():
        path = root / kind
        command = ["-m", "pex", "--no-pypi", "--no-transitive", "--output-file", path, *options]
        hostile.prints([sys.executable, *command, *wheels(index)], env=env)
        made[kind] = Started(path, **env)
    (root / "child.py").write_text(CHILD)
    return made


def _child(pex: Started, *, first: bool) -> str:
    directory = Path(pex.env["HOME"])
    code = f"import sys; sys.path.insert(0, {str(directory)!r}); import child"
    return pex.prints("-c", f"{code}; print(child.ask({first}))", cwd=directory)


def test_a_pex_with_an_environment_of_its_own_is_active(pex: dict[str, Started]) -> None:
    assert pex["venv"].prints("-c", SCALED) == PATCHED
    assert pex["venv"].failed_checks() == set()
    assert _child(pex["venv"], first=False) == PATCHED


def test_a_pex_is_active_in_its_first_process_only(pex: dict[str, Started]) -> None:
    """PEX reads .pth files itself; an interpreter that is started from it does not."""
    assert pex["zipapp"].prints("-c", SCALED) == PATCHED
    assert pex["zipapp"].failed_checks() == {"new process"}
    assert _child(pex["zipapp"], first=False) == str((int(STOCK), "OverlayError"))
    assert _child(pex["zipapp"], first=True) == PATCHED


# Zip files.


def test_the_overlay_in_a_zip_file_is_an_error(index: Path, tmp_path: Path) -> None:
    """A wheel is one; it can be imported from, but nothing can be served from it."""
    vllm, overlay = wheels(index)
    with zipfile.ZipFile(vllm) as archive:
        archive.extractall(tmp_path / "vllm")
    paths = os.pathsep.join(map(str, (overlay, tmp_path / "vllm")))
    python = Started(
        sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", PYTHONPATH=paths
    )
    assert python.prints("-c", "import vllm_nemo; print(1)") == "1"
    for code in (ACTIVATED, "import vllm_nemo; vllm_nemo.list_patches()", GUARDED):
        error = python.fails("-c", code)
        assert "OverlayError" in error
        assert f"{overlay}/vllm_nemo is inside a zip file" in error
    assert python.failed_checks() == {"overlay"}


def test_vllm_in_a_zip_application_is_an_error(own: installed.Interpreter, tmp_path: Path) -> None:
    shutil.move(own.file("vllm"), tmp_path / "application" / "vllm")
    (tmp_path / "application" / "__main__.py").write_text("import vllm.models\n")
    archive = tmp_path / "application.pyz"
    own.prints("-m", "zipapp", tmp_path / "application", "-o", archive)
    error = own.fails(archive)
    assert "OverlayError" in error
    assert "Install vLLM from its wheel, unpacked" in error


# Less than the usual start.


@pytest.fixture(scope="module")
def whole(index: Path, tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    """Unpack both wheels into an environment by hand: no installer, no script, no INSTALLER."""
    environment = installed.make(tmp_path_factory.mktemp("whole") / "env")
    for wheel in wheels(index):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(environment.site_packages)
    return environment


@pytest.mark.parametrize("flags", [[], ["-I"], ["-E"], ["-P"], ["-IBq"]], ids=str)
def test_wheels_unpacked_by_hand_are_active(whole: installed.Interpreter, flags: list[str]) -> None:
    if flags == ["-P"] and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no -P")
    python = Started(whole.python, *flags, PYTHONPATH="/nonexistent")
    assert python.prints("-c", GUARDED) == PATCHED
    assert python.failed_checks() == set()


@pytest.mark.parametrize("flags", [["-S"], ["-IS"], ["-SE"]], ids=str)
def test_without_site_it_has_to_be_imported_first(
    whole: installed.Interpreter, flags: list[str]
) -> None:
    python = Started(whole.python, *flags)
    path = f"import sys; sys.path.append({str(whole.site_packages)!r}); "
    process = python.run("-c", path + GUARDED)
    assert (process.returncode, process.stdout.strip()) == (1, STOCK)
    assert "Import vllm_nemo before anything that imports vLLM" in process.stderr
    assert python.prints("-c", path + ACTIVATED) == PATCHED


def test_a_directory_on_the_path_has_to_be_imported_first(
    whole: installed.Interpreter, index: Path, tmp_path: Path
) -> None:
    """vLLM is installed; the overlay is unpacked beside it, where no .pth file is read."""
    environment = installed.make(tmp_path / "env")
    vllm, overlay = wheels(index)
    for wheel, directory in ((vllm, environment.site_packages), (overlay, tmp_path / "overlay")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
    python = Started(environment.python, PYTHONPATH=str(tmp_path / "overlay"))
    process = python.run("-c", GUARDED)
    assert (process.returncode, process.stdout.strip()) == (1, STOCK)
    assert "OverlayError" in process.stderr
    assert python.prints("-c", ACTIVATED) == PATCHED
    assert python.failed_checks() == {"new process"}
    # The same directory, as a site directory of the interpreter.
    environment.file("more.pth").write_text(
        f"import site; site.addsitedir({str(tmp_path / 'overlay')!r})\n"
    )
    assert Started(environment.python).prints("-c", GUARDED) == PATCHED


def test_files_that_were_lost_on_the_way_are_named(
    whole: installed.Interpreter, tmp_path: Path
) -> None:
    """An archive that leaves out what it takes for data, a copy that was cut short."""
    copy = tmp_path / "copy"
    shutil.copytree(whole.root, copy, symlinks=True)
    python = Started(copy / "bin" / "python")
    (site_packages,) = copy.glob("lib/python3*/site-packages")
    assert python.prints("-c", GUARDED) == PATCHED
    for lost, message in (
        ("vllm_nemo/_modules/vllm/models.py", "models.py is missing since it was built"),
        ("vllm_nemo/manifest.json", "holds no manifest.json"),
    ):
        (site_packages / lost).unlink()
        assert message in python.fails("-c", SCALED)
    shutil.rmtree(site_packages / "vllm_nemo")
    # All that is left is the .pth file, which every start complains about.
    process = python.run("-c", SCALED)
    assert "Error processing line 1" in process.stderr
    assert "No module named 'vllm_nemo'" in process.stderr
