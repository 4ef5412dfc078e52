"""The overlay is active however an interpreter of the environment is started."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import installed

if TYPE_CHECKING:
    from pathlib import Path

# Patched module, patched package, patched module in it, and what an unpatched module sees.
ORIGINS = """\
import vllm.models, vllm.engine, vllm.engine.core, vllm.plain, vllm.engine.helper
print(vllm.models.ORIGIN, vllm.engine.ORIGIN, vllm.engine.core.ORIGIN, vllm.plain.SEEN,
      vllm.plain.ORIGIN, vllm.engine.HELP)
"""
OVERLAY = "served served served served stock stock"
STOCK = "stock stock stock stock stock stock"


@pytest.mark.parametrize("flags", [[], ["-I"], ["-E"], ["-s"], ["-B"], ["-O"], ["-OO"], ["-IB"]])
def test_every_ordinary_start_is_active(shared: installed.Interpreter, flags: list[str]) -> None:
    assert shared.prints(*flags, "-c", ORIGINS) == OVERLAY


def test_an_empty_environment_and_another_directory_change_nothing(
    shared: installed.Interpreter, tmp_path: Path
) -> None:
    process = subprocess.run(
        [shared.python, "-c", ORIGINS],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == OVERLAY


def test_a_script_run_by_path(shared: installed.Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ORIGINS)
    assert shared.prints(script) == OVERLAY


def test_standard_input(shared: installed.Interpreter) -> None:
    process = subprocess.run(
        [shared.python], input=ORIGINS, capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == OVERLAY


def test_a_patched_module_as_main(shared: installed.Interpreter) -> None:
    expected = f"served served vllm.models {shared.served('vllm/models.py')}"
    assert shared.prints("-m", "vllm.models") == expected


def test_runpy_runs_the_patched_module(shared: installed.Interpreter) -> None:
    code = "import runpy; runpy.run_module('vllm.models', run_name='__main__', alter_sys=True)"
    expected = f"served served vllm.models {shared.served('vllm/models.py')}"
    assert shared.prints("-c", code) == expected


def test_runpy_without_main_returns_the_patched_namespace(shared: installed.Interpreter) -> None:
    code = "import runpy; print(runpy.run_module('vllm.engine.core')['ORIGIN'])"
    assert shared.prints("-c", code) == "served"


def test_a_module_that_runs_its_own_file_in_a_new_process(
    shared: installed.Interpreter, tmp_path: Path
) -> None:
    """As vLLM does in its peer-to-peer check: [sys.executable, __file__]."""
    code = (
        "import subprocess, sys, vllm.engine.core as core;"
        "print(subprocess.run([sys.executable, core.__file__], check=True).returncode)"
    )
    assert shared.prints("-c", code, cwd=tmp_path) == "0"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("parent_first", [True, False])
def test_children_of_multiprocessing(
    shared: installed.Interpreter,
    tmp_path: Path,
    method: str,
    parent_first: bool,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""\
import multiprocessing, os

def work(queue):
    import vllm.models, vllm.engine.core
    queue.put((os.getpid(), vllm.models.ORIGIN, vllm.engine.core.ORIGIN))

if __name__ == "__main__":
    if {parent_first}:
        import vllm.models
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    pid, *seen = queue.get(timeout=60)
    child.join()
    print(pid == child.pid != os.getpid(), child.exitcode, *seen)
""")
    assert shared.prints(script) == "True 0 served served"


def test_a_forkserver_that_preloads_vllm(shared: installed.Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""\
import multiprocessing, sys

def work(queue):
    queue.put(("vllm.models" in sys.modules, sys.modules["vllm.models"].ORIGIN))

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vllm.models"])
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(*queue.get(timeout=60))
    child.join()
""")
    assert shared.prints(script) == "True served"


def test_a_process_pool_pickles_classes_of_patched_modules(
    shared: installed.Interpreter, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text("""\
import concurrent.futures, multiprocessing
from vllm.models import Model

def double(model):
    return Model(model.layers * 2), model.origin()

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        model, origin = pool.submit(double, Model(4)).result(timeout=60)
    print(type(model) is Model, model.layers, origin)
""")
    assert shared.prints(script) == "True 8 served"


def test_a_directory_added_as_a_site_directory_activates(tmp_path: Path) -> None:
    environment = installed.make(tmp_path / "env")
    elsewhere = tmp_path / "elsewhere"
    installed.write_vllm(environment.site_packages)
    installed.write_overlay(elsewhere)
    code = f"import site; site.addsitedir({str(elsewhere)!r})\n"
    assert environment.prints("-c", ORIGINS) == STOCK
    assert environment.prints("-c", code + ORIGINS) == OVERLAY


@pytest.mark.parametrize("name", ["vllm_nemo_z.pth", "zzz.pth"])
def test_a_neighbour_that_imports_vllm_at_the_start_comes_after_ours(
    own: installed.Interpreter, name: str
) -> None:
    """Python 3.15 would run a .start file of ours, and ignore our .pth, after all other .pth."""
    own.file(name).write_text("import vllm.models\n")
    assert own.prints("-W", "error", "-c", ORIGINS) == OVERLAY


def test_the_finder_stands_right_before_the_path_finder(shared: installed.Interpreter) -> None:
    code = """\
import importlib, sys
import vllm_nemo
importlib.reload(vllm_nemo)
names = [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path]
print(names.count("OverlayFinder"), names.index("PathFinder") - names.index("OverlayFinder"))
"""
    assert shared.prints("-c", code) == "1 1"


def test_in_a_compiled_program_the_finder_stands_first(shared: installed.Interpreter) -> None:
    """Nuitka's own finder stands in front, and knows a stock vLLM that it has compiled."""
    code = """\
import sys
import vllm_nemo
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "OverlayFinder"]
vllm_nemo.__compiled__ = True
vllm_nemo.activate()
print(type(sys.meta_path[0]).__name__)
"""
    assert shared.prints("-c", code) == "OverlayFinder"


def test_without_a_path_finder_it_stands_last(shared: installed.Interpreter) -> None:
    code = """\
import sys
import vllm_nemo
sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__name__", "") == "BuiltinImporter"]
vllm_nemo.activate()
print([getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path])
"""
    assert shared.prints("-c", code) == "['BuiltinImporter', 'OverlayFinder']"


# Where site does not read the .pth file, and `import vllm_nemo` does its work.


@pytest.fixture(scope="module")
def unprocessed(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[installed.Interpreter, list[str], dict[str, str]]]:
    """Give the two ways to have the overlay on sys.path without its .pth being read."""
    root = tmp_path_factory.mktemp("unprocessed")
    skipped = installed.install(root / "skipped")
    target = installed.make(root / "target")
    installed.write_vllm(target.site_packages)
    installed.write_overlay(root / "directory")
    return {
        "-S": (skipped, ["-S"], {"PYTHONPATH": str(skipped.site_packages)}),
        "PYTHONPATH": (target, [], {"PYTHONPATH": str(root / "directory")}),
    }


@pytest.mark.parametrize("how", ["-S", "PYTHONPATH"])
class TestUnprocessed:
    def test_it_is_not_active(self, unprocessed, how: str) -> None:
        python, flags, env = unprocessed[how]
        assert python.prints(*flags, "-c", ORIGINS, env=env) == STOCK

    def test_importing_it_first_repairs(self, unprocessed, how: str) -> None:
        python, flags, env = unprocessed[how]
        code = "import vllm_nemo\n" + ORIGINS
        assert python.prints(*flags, "-c", code, env=env) == OVERLAY

    def test_the_guard_raises_on_stock_modules(self, unprocessed, how: str) -> None:
        python, flags, env = unprocessed[how]
        code = "import vllm.models; from vllm_nemo._overlay.guard import check; check()"
        error = python.fails(*flags, "-c", code, env=env)
        assert "vllm_nemo.OverlayError" in error
        assert f"vllm.models from {python.file('vllm/models.py')}" in error

    def test_the_guard_passes_when_nothing_patched_is_loaded_yet(
        self, unprocessed, how: str
    ) -> None:
        """Loading the guard activates: what is imported from then on is served."""
        python, flags, env = unprocessed[how]
        code = """\
import vllm
from vllm_nemo._overlay.guard import check
check()
import vllm.models
print(vllm.models.ORIGIN)
"""
        assert python.prints(*flags, "-c", code, env=env) == "served"

    def test_activating_too_late_is_an_error_at_the_next_import(
        self, unprocessed, how: str
    ) -> None:
        python, flags, env = unprocessed[how]
        code = "import vllm.models, vllm_nemo\nimport vllm.plain"
        error = python.fails(*flags, "-c", code, env=env)
        assert "OverlayError" in error
        assert "Import vllm_nemo before anything that imports vLLM" in error

    def test_requiring_a_patch_too_late_is_an_error(self, unprocessed, how: str) -> None:
        python, flags, env = unprocessed[how]
        code = "import vllm.models, vllm_nemo; vllm_nemo.require('first')"
        assert "OverlayError" in python.fails(*flags, "-c", code, env=env)

    def test_the_doctor_says_why(self, unprocessed, how: str) -> None:
        python, flags, env = unprocessed[how]
        process = python.run(*flags, "-m", "vllm_nemo", "doctor", "--json", env=env)
        assert process.returncode == 1
        checks = {check["name"]: check for check in json.loads(process.stdout)["checks"]}
        assert {name for name, check in checks.items() if check["state"] == "fail"} == {
            "new process"
        }
        reason = {"-S": "-S skips site", "PYTHONPATH": "is no site directory"}[how]
        assert reason in checks["new process"]["detail"]
        assert "`import vllm_nemo`" in checks["new process"]["detail"]


# The switch.


@pytest.mark.parametrize(("value", "expected"), [("", OVERLAY), ("on", OVERLAY), ("off", STOCK)])
def test_the_switch(shared: installed.Interpreter, value: str, expected: str) -> None:
    assert shared.prints("-c", ORIGINS, env={"NRL_VLLM_OVERLAY": value}) == expected


def test_switched_off_there_are_no_added_modules(shared: installed.Interpreter) -> None:
    error = shared.fails("-c", "import vllm.added", env={"NRL_VLLM_OVERLAY": "off"})
    assert "ModuleNotFoundError" in error


@pytest.mark.parametrize("value", ["0", "OFF", "true", " off"])
def test_a_switch_that_is_neither_is_an_error(shared: installed.Interpreter, value: str) -> None:
    env = {"NRL_VLLM_OVERLAY": value}
    error = shared.fails("-c", "import vllm", env=env)
    assert "OverlayError" in error
    assert repr(value) in error
    assert "'on'" in error
    assert "'off'" in error
    assert shared.prints("-c", "print(1)", env=env) == "1", "only vLLM is refused"


def test_the_switch_may_be_set_by_the_program_before_it_imports_vllm(
    shared: installed.Interpreter,
) -> None:
    code = "import os; os.environ['NRL_VLLM_OVERLAY'] = 'off'\n" + ORIGINS
    assert shared.prints("-c", code) == STOCK


def test_the_switch_cannot_change_half_way(shared: installed.Interpreter) -> None:
    code = "import os, vllm.models; os.environ['NRL_VLLM_OVERLAY'] = 'off'\n" + ORIGINS
    assert shared.prints("-c", code) == OVERLAY


def test_switched_off_the_guard_warns_and_lets_go(shared: installed.Interpreter) -> None:
    code = """\
import vllm.models
from vllm_nemo._overlay.guard import check
check()
print(vllm.models.ORIGIN)
"""
    process = shared.run("-c", code, env={"NRL_VLLM_OVERLAY": "off"})
    assert (process.returncode, process.stdout.strip()) == (0, "stock")
    assert "NRL_VLLM_OVERLAY=off" in process.stderr
