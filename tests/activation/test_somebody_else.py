"""A patched module that an import hook of somebody else loads: the next vLLM import is an error.

And programs that only ask whether vLLM is there, which are told and not ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import installed

# As typeguard and jaxtyping do it: a finder in front that asks the path finder, and puts a loader
# of its own into the answer.
HOOK = """\
import sys
from importlib.machinery import PathFinder, SourceFileLoader

class Checking(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        module.CHECKED = True

class Hook:
    def __init__(self, *names):
        self.names = names
    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Checking(spec.loader.name, spec.loader.path)
        return spec

def install(*names):
    sys.meta_path.insert(0, Hook(*names))

from vllm_nemo._overlay.guard import check
"""
MODELS = "vllm.models from"


@pytest.fixture
def hooked(shared: installed.Interpreter, tmp_path: Path) -> Hooked:
    return Hooked(shared, tmp_path)


class Hooked:
    def __init__(self, environment: installed.Interpreter, directory: Path) -> None:
        self.environment = environment
        self.env = {"PYTHONPATH": str(directory)}
        (directory / "hook.py").write_text(HOOK)

    def fails(self, code: str) -> tuple[str, str]:
        """Run a program, which must fail, and return what it printed and its error."""
        process = self.environment.run("-c", f"import hook\n{code}", env=self.env)
        assert process.returncode != 0, process.stdout
        assert "OverlayError" in process.stderr
        return process.stdout.strip(), process.stderr

    def prints(self, code: str) -> str:
        return self.environment.prints("-c", f"import hook\n{code}", env=self.env)


def test_the_guard_asks_who_would_load_what_is_not_loaded_yet(hooked: Hooked) -> None:
    code = "import vllm; hook.install('vllm.models'); print('installed'); hook.check()"
    printed, error = hooked.fails(code)
    assert printed == "installed"
    assert "vllm.models would come from" in error
    assert "Hook" in error


def test_require_asks_too(hooked: Hooked) -> None:
    code = "import vllm, vllm_nemo; hook.install('vllm.models'); vllm_nemo.require('first')"
    assert "vllm.models would come from" in hooked.fails(code)[1]


def test_nobody_is_asked_for_a_module_whose_package_is_not_loaded(hooked: Hooked) -> None:
    """Some finders ask importlib.util.find_spec, which would import the package with all of it."""
    code = """\
import sys, importlib.util
class Watching:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("vllm."):
            return importlib.util.find_spec(name)
sys.meta_path.insert(0, Watching())
import vllm_nemo
vllm_nemo.require("first")
print("vllm" in sys.modules)
"""
    assert hooked.prints(code) == "False"


@pytest.mark.parametrize("next_", ["vllm.plain", "vllm.engine", "vllm.added", "vllm.extra.inside"])
def test_the_next_import_after_the_guard_has_passed(hooked: Hooked, next_: str) -> None:
    code = f"""\
hook.check()
hook.install("vllm.models")
import vllm.models
print(vllm.models.ORIGIN, vllm.models.CHECKED)
import {next_}
print("imported")
"""
    printed, error = hooked.fails(code)
    assert printed == "stock True"
    assert MODELS in error


def test_a_module_that_is_loaded_by_somebody_else_imports_another(hooked: Hooked) -> None:
    code = """\
import vllm
hook.check()
hook.install("vllm.engine.core")
import vllm.engine.core
print("imported")
"""
    printed, error = hooked.fails(code)
    assert printed == ""
    assert "vllm.engine.core from" in error


def test_a_served_module_that_has_a_stock_one_loaded_is_not_loaded(hooked: Hooked) -> None:
    """Nothing else is imported: the served module itself is where the overlay gets to see it."""
    code = """\
hook.check()
import vllm.engine
hook.install("vllm.models")
try:
    import vllm.engine.core
finally:
    import sys
    print("vllm.models" in sys.modules, "vllm.engine.core" in sys.modules)
"""
    printed, error = hooked.fails(code)
    assert printed == "True False"
    assert MODELS in error


def test_a_stock_module_in_place_of_a_served_one(hooked: Hooked) -> None:
    code = """\
import importlib, sys, vllm.models
hook.check()
before = vllm.models
hook.install("vllm.models")
importlib.reload(vllm.models)
print(vllm.models is before, vllm.models.ORIGIN)
import vllm.plain
"""
    printed, error = hooked.fails(code)
    assert printed == "True stock"
    assert MODELS in error


def test_an_import_that_was_taken_back_is_forgiven(hooked: Hooked) -> None:
    code = """\
import sys
hook.install("vllm.models")
import vllm.models
del sys.modules["vllm.models"]
del sys.meta_path[0]
import vllm.plain
hook.check()
print(vllm.models.ORIGIN)
"""
    assert hooked.prints(code) == "served"


@pytest.mark.parametrize(
    ("files", "then"),
    [
        # No import reaches the overlay, so that the guard is what sees it.
        ("*.py", "guard.check()"),
        ("test_*.py models.py", "guard.check()"),
        ("test_*.py models.py", "import vllm.plain"),
    ],
)
def test_pytest_rewrites_what_it_takes_for_tests(
    own: installed.Interpreter, tmp_path: Path, files: str, then: str
) -> None:
    """Its finder in front loads what ``python_files`` fits, wherever that is."""
    version = own.prints("-c", "import sys; print(sys.version_info[:2])")
    if version != str(sys.version_info[:2]):
        pytest.skip("this pytest's own requirements are those of another Python")
    work = tmp_path / "work"
    work.mkdir()
    options = f"[pytest]\npython_files = {files}\naddopts = -p no:cacheprovider\n"
    (work / "pytest.ini").write_text(options)
    (work / "test_it.py").write_text(
        "from vllm_nemo._overlay import guard\n"
        "def test_it():\n"
        "    import vllm.models\n"
        "    assert vllm.models.ORIGIN == 'stock'\n"
        f"    {then}\n"
    )
    tools = Path(pytest.__file__).parent.parent
    process = own.run("-m", "pytest", "-q", work, cwd=work, env={"PYTHONPATH": str(tools)})
    assert process.returncode == 1
    assert "vllm.models from" in process.stdout
    assert "OverlayError" in process.stdout


def test_a_hook_over_all_of_vllm_is_seen_when_a_model_has_been_built(tmp_path: Path) -> None:
    """Every import is the hook's, and the guard has passed: a patch's logic is what is left."""
    environment = installed.make(tmp_path / "env")
    installed.write_vllm(environment.site_packages)
    # By hand, because the wheel of the stand-in has no logic of the project's own patches.
    installed.write_overlay(environment.site_packages, served=dict(installed.SERVED))
    hooked = Hooked(environment, tmp_path)
    code = """\
import types
from vllm_nemo.patches import fp32_lm_head
config = types.SimpleNamespace(model_config=None)
import vllm.engine
hook.check()
fp32_lm_head.check(None, config, None, "")
hook.install("vllm.models", "vllm.plain")
import vllm.models, vllm.plain
print("loaded")
fp32_lm_head.check(None, config, None, "")
"""
    printed, error = hooked.fails(code)
    assert printed == "loaded"
    assert MODELS in error


# Programs that only ask.

ASK = """\
import importlib.util
spec = importlib.util.find_spec({name!r})
print(spec is not None and spec.origin)
"""


@pytest.mark.parametrize("damage", ["stock", "helper", "manifest", "switch"])
def test_a_program_that_only_asks_is_told_where_vllm_is(
    own: installed.Interpreter, damage: str
) -> None:
    env = {}
    if damage == "stock":
        own.file("vllm/models.py").write_text("edited\n")
    elif damage == "helper":
        own.file("vllm_nemo/_overlay/guard.py").unlink()
    elif damage == "manifest":
        own.file("vllm_nemo/manifest.json").write_text("{")
    else:
        env = {"NRL_VLLM_OVERLAY": "maybe"}
    assert own.prints("-c", ASK.format(name="vllm"), env=env) == str(own.file("vllm/__init__.py"))
    for code in ("import vllm", "import vllm.plain", "from vllm import models"):
        program = f"try:\n    {code}\nexcept ImportError:\n    print('swallowed')\n"
        assert "OverlayError" in own.fails("-c", program, env=env)
    # To find a module in a package, Python imports the package.
    assert "OverlayError" in own.fails("-c", ASK.format(name="vllm.plain"), env=env)


def test_a_program_that_asks_for_a_module_is_told_where_it_is(own: installed.Interpreter) -> None:
    """The package is loaded already, so that a finder is asked for the module alone."""
    own.served("vllm/models.py").write_text("edited\n")
    asked = own.prints("-c", "import vllm\n" + ASK.format(name="vllm.models"))
    assert asked == str(own.file("vllm/models.py"))
    for program in (("-c", "import vllm, vllm.models"), ("-m", "vllm.models")):
        error = own.fails(*program)
        assert "OverlayError" in error
        assert "models.py is changed since it was built" in error


def test_a_module_that_is_not_there_is_not_there(own: installed.Interpreter) -> None:
    own.file("vllm/engine/core.py").write_text("edited after the import\n")
    asked = own.prints(
        "-c",
        "import sys, types\nsys.modules['vllm.models'] = types.ModuleType('vllm.models')\n"
        "import importlib.util\n"
        "vllm = sys.modules['vllm'] = types.ModuleType('vllm')\n"
        f"vllm.__path__ = [{str(own.file('vllm'))!r}]\n" + ASK.format(name="vllm.nothing"),
    )
    assert asked == "False"


def test_a_reload_is_an_import(own: installed.Interpreter) -> None:
    code = f"""\
import importlib, vllm.models
open({str(own.served("vllm/models.py"))!r}, "a").write("# edited")
importlib.reload(vllm.models)
"""
    assert "is changed since it was built" in own.fails("-c", code)
