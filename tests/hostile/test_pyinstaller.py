"""Programs that PyInstaller freezes: patched without a word of theirs, or they refuse vLLM."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.support import hostile, installed

# What vLLM and its users do: import, ask for plugins, start a process, ask for a patch.
PROGRAM = """\
import multiprocessing, sys

def work(queue):
    import vllm.engine.core
    queue.put(vllm.engine.core.ORIGIN)

if __name__ == "__main__":
    multiprocessing.freeze_support()
    if sys.argv[1:] == ["nothing"]:
        sys.exit()
    import vllm.models, vllm.engine, vllm.plain
    print(vllm.models.ORIGIN, vllm.engine.ORIGIN, vllm.plain.SEEN, vllm.plain.ORIGIN)
    from importlib.metadata import entry_points
    for plugin in entry_points(group="vllm.general_plugins"):
        plugin.load()()
        print(plugin.name)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
    if sys.argv[1:]:
        import importlib, vllm_nemo
        print(vllm_nemo.require("first").outcome, importlib.import_module("vllm.added").ORIGIN)
"""


def environment(root: Path) -> installed.Interpreter:
    """Make an environment with the overlay in which the tests' own PyInstaller runs."""
    made = installed.install(root / "env")
    # Not of the environments' interpreter, which may be another; and after whatever is in it.
    made.file("zz_pyinstaller.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (root / "program.py").write_text(PROGRAM)
    return made


def freeze(made: installed.Interpreter, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", *options, "program.py"]
    env = {"PYINSTALLER_CONFIG_DIR": str(made.root.parent / "cache")}
    return hostile.run([made.python, *command], env=env, cwd=made.root.parent)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Freeze the program; return its directory, which has all it needs."""
    root = tmp_path_factory.mktemp("frozen")
    made = environment(root)
    process = freeze(made)
    assert process.returncode == 0, process.stdout + process.stderr
    moved = root / "elsewhere"
    shutil.move(root / "dist" / "program", moved)
    shutil.rmtree(made.root)
    return moved


def run(program: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return hostile.run([program / "program", *arguments], env=env)


def test_the_program_is_patched(frozen: Path) -> None:
    process = run(frozen, "more")
    assert process.returncode == 0, process.stderr
    served = "served served served stock"
    assert process.stdout.splitlines() == [served, "vllm_nemo", "served", "applied served"]


def test_the_switch_gives_stock(frozen: Path) -> None:
    process = run(frozen, NRL_VLLM_OVERLAY="off")
    assert process.stdout.splitlines()[0] == "stock stock stock stock"


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("vllm_nemo/_modules/vllm/models.py", "models.py is missing since it was built"),
        ("vllm_nemo/manifest.json", "this program was frozen without the overlay's files"),
        ("vllm/engine/core.py", "missing: vllm/engine/core.py"),
    ],
)
def test_a_program_that_lost_a_file_refuses_vllm(
    frozen: Path, tmp_path: Path, lost: str, message: str
) -> None:
    shutil.copytree(frozen, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / "_internal" / lost).unlink()
    assert run(tmp_path / "copy", "nothing").returncode == 0
    process = run(tmp_path / "copy")
    assert (process.returncode, process.stdout) == (1, "")
    assert "OverlayError" in process.stderr
    assert message in process.stderr
    assert "this is vllm-nemo's source tree" not in process.stderr


def test_a_hook_of_somebody_else_in_place_of_ours_makes_no_stock_program(tmp_path: Path) -> None:
    made = environment(tmp_path)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "hook-vllm.py").write_text("")
    process = freeze(made, "--additional-hooks-dir", tmp_path / "hooks")
    assert process.returncode == 0, process.stdout + process.stderr
    process = run(tmp_path / "dist" / "program")
    assert (process.returncode, process.stdout) == (1, "")
    assert "this program was frozen without the overlay's files" in process.stderr


def test_another_vllm_is_not_frozen(tmp_path: Path) -> None:
    made = environment(tmp_path)
    made.file("vllm/engine/core.py").write_text("edited")
    process = freeze(made)
    assert process.returncode != 0
    assert "OverlayError" in process.stderr
    assert "changed: vllm/engine/core.py" in process.stderr
    assert not (tmp_path / "dist" / "program").exists()
