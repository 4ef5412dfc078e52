"""What Python's own tools see of a served module is what they would see of any other."""

from __future__ import annotations

import json
import os
import py_compile
from typing import TYPE_CHECKING

import pytest

from tests.support import installed

if TYPE_CHECKING:
    from pathlib import Path


def test_a_module_says_where_it_is(shared: installed.Interpreter) -> None:
    code = """\
import importlib.util, json
import vllm.models as module
spec = module.__spec__
print(json.dumps([module.__file__, spec.origin, spec.name, module.__package__, spec.has_location,
                  importlib.util.find_spec("vllm.models").origin,
                  spec.cached == importlib.util.cache_from_source(module.__file__),
                  module.Model.__module__, spec.submodule_search_locations]))
"""
    served = str(shared.served("vllm/models.py"))
    assert json.loads(shared.prints("-c", code)) == [
        served,
        served,
        "vllm.models",
        "vllm",
        True,
        served,
        True,
        "vllm.models",
        None,
    ]


def test_a_package_keeps_its_search_path(shared: installed.Interpreter) -> None:
    code = (
        "import vllm.engine as e; print(e.__file__, *e.__path__, e.__package__, e.helper.__file__)"
    )
    assert shared.prints("-c", code).split() == [
        str(shared.served("vllm/engine/__init__.py")),
        str(shared.file("vllm/engine")),
        "vllm.engine",
        str(shared.file("vllm/engine/helper.py")),
    ]


def test_the_top_package_itself_can_be_patched(tmp_path: Path) -> None:
    environment = installed.make(tmp_path / "env")
    served = {"vllm/__init__.py": "ORIGIN = 'served'\n"}
    installed.write_vllm(environment.site_packages)
    installed.write_overlay(environment.site_packages, served=served)
    code = "import vllm, vllm.models as m; print(vllm.ORIGIN, *vllm.__path__, m.ORIGIN)"
    expected = f"served {environment.file('vllm')} stock"
    assert environment.prints("-c", code) == expected
    assert environment.run("-m", "vllm_nemo", "doctor").returncode == 0


def test_modules_that_the_overlay_adds(shared: installed.Interpreter) -> None:
    code = """\
import vllm.added, vllm.extra.inside
print(vllm.added.ORIGIN, vllm.extra.inside.ORIGIN, vllm.added.__file__, *vllm.extra.__path__)
"""
    assert shared.prints("-c", code).split() == [
        "served",
        "served",
        str(shared.served("vllm/added.py")),
        str(shared.served("vllm/extra")),
    ]


def test_get_source(shared: installed.Interpreter) -> None:
    code = """\
import inspect, vllm.models as module
print(inspect.getsource(module) == open(module.__file__).read())
print(inspect.getsource(module.Model.origin))
print(inspect.getsourcelines(module.fail)[1], module.fail.__code__.co_filename == module.__file__)
"""
    lines = installed.SERVED["vllm/models.py"].splitlines()
    number = lines.index("def fail():") + 1
    assert shared.prints("-c", code).split("\n") == [
        "True",
        "    def origin(self):",
        "        return ORIGIN",
        "",
        f"{number} True",
    ]


def test_a_traceback_shows_the_served_line(shared: installed.Interpreter) -> None:
    lines = installed.SERVED["vllm/models.py"].splitlines()
    number = lines.index("    raise ValueError(ORIGIN)") + 1
    error = shared.fails("-c", "import vllm.models; vllm.models.fail()")
    assert f'File "{shared.served("vllm/models.py")}", line {number}, in fail' in error
    assert "raise ValueError(ORIGIN)" in error
    assert error.rstrip().endswith("ValueError: served")


def test_a_reload_serves_the_module_again(shared: installed.Interpreter) -> None:
    code = """\
import importlib, vllm.models as module, vllm.engine as package
module.ORIGIN = package.ORIGIN = "changed"
again = importlib.reload(module), importlib.reload(package)
print(again == (module, package), module.ORIGIN, package.ORIGIN, module.__file__)
"""
    served = shared.served("vllm/models.py")
    assert shared.prints("-c", code) == f"True served served {served}"


def test_resources_of_a_patched_package_are_the_stock_ones(shared: installed.Interpreter) -> None:
    code = """\
import importlib.resources, json, pkgutil
files = importlib.resources.files("vllm.engine")
with importlib.resources.as_file(files / "settings.json") as path:
    print(json.loads(path.read_text()), sorted(f.name for f in files.iterdir() if f.suffix))
print(pkgutil.get_data("vllm", "engine/settings.json") == path.read_bytes())
"""
    listed = ["__init__.py", "core.py", "helper.py", "settings.json"]
    assert shared.prints("-c", code) == f"{{'threads': 2}} {listed}\nTrue"


def test_data_is_found_through_the_loader_where_stock_vllm_has_it(
    shared: installed.Interpreter,
) -> None:
    """pkgutil and others join a name to the directory of __file__, and ask the loader."""
    code = """\
import json, os, pkgutil
from pathlib import Path
import vllm.engine as package, vllm.models as module

def below(module, *parts):
    return os.path.join(os.path.dirname(module.__file__), *parts)

print(json.dumps([
    pkgutil.get_data("vllm.engine", "settings.json").decode(),
    package.__loader__.get_data(below(package, "settings.json")).decode(),
    package.__loader__.get_data(Path(below(package, "settings.json"))).decode(),
    package.__loader__.get_data(below(package, "..", "engine", "settings.json")).decode(),
    pkgutil.get_data("vllm.models", "engine/settings.json").decode(),
    module.__loader__.get_data(below(module, "engine", "settings.json")).decode(),
]))
"""
    found = json.loads(shared.prints("-c", code))
    assert found == [installed.STOCK["vllm/engine/settings.json"]] * 6


def test_sources_as_data_are_those_that_run(shared: installed.Interpreter) -> None:
    """A patched file is the served one; a file that is not patched is stock vLLM's."""
    code = """\
import json, pkgutil
names = "__init__.py", "core.py", "helper.py"
print(json.dumps([pkgutil.get_data("vllm.engine", name).decode() for name in names]))
"""
    assert json.loads(shared.prints("-c", code)) == [
        shared.served("vllm/engine/__init__.py").read_text(),
        shared.served("vllm/engine/core.py").read_text(),
        shared.file("vllm/engine/helper.py").read_text(),
    ]


@pytest.mark.parametrize("name", ["nothing.json", "../../nothing.json"])
def test_data_that_is_nowhere_is_missing_by_the_name_that_was_asked_for(
    shared: installed.Interpreter, name: str
) -> None:
    code = f"import pkgutil; pkgutil.get_data('vllm.engine', {name!r})"
    error = shared.fails("-c", code)
    asked = shared.served("vllm/engine") / name
    assert error.rstrip().endswith(
        f"FileNotFoundError: [Errno 2] No such file or directory: {str(asked)!r}"
    )


def test_data_elsewhere_is_not_looked_for_in_vllm(shared: installed.Interpreter) -> None:
    code = """\
import vllm.engine, sys
try:
    vllm.engine.__loader__.get_data(sys.argv[1])
except FileNotFoundError as error:
    print(error.filename)
"""
    outside = str(shared.root / "vllm" / "engine" / "settings.json")
    assert shared.prints("-c", code, outside) == outside


def test_data_of_an_added_package(shared: installed.Interpreter) -> None:
    code = "import pkgutil; print(pkgutil.get_data('vllm.extra', 'inside.py').decode(), end='')"
    assert shared.prints("-c", code) == shared.served("vllm/extra/inside.py").read_text().strip()
    error = shared.fails("-c", "import pkgutil; pkgutil.get_data('vllm.extra', 'none.json')")
    assert "FileNotFoundError" in error


def test_walking_the_packages(shared: installed.Interpreter) -> None:
    """All that stock vLLM has. An added module is found by name: it is in no directory of vLLM."""
    code = """\
import pkgutil, sys, vllm
print(*sorted(module.name for module in pkgutil.walk_packages(vllm.__path__, "vllm.")))
print(sys.modules["vllm.engine"].ORIGIN)
"""
    names, origin = shared.prints("-c", code).split("\n")
    stock = {installed.module_name(path) for path in installed.STOCK if path.endswith(".py")}
    assert set(names.split()) == stock - {"vllm"}
    assert origin == "served"


def test_walking_an_added_package(shared: installed.Interpreter) -> None:
    code = (
        "import pkgutil, vllm.extra as p; print([m.name for m in pkgutil.iter_modules(p.__path__)])"
    )
    assert shared.prints("-c", code) == "['inside']"


def test_sixteen_threads_import_at_once(shared: installed.Interpreter) -> None:
    code = """\
import threading
names = ["vllm.models", "vllm.engine.core", "vllm.engine", "vllm.extra.inside"] * 4
barrier = threading.Barrier(len(names))
seen = []
def work(name):
    barrier.wait()
    module = __import__(name, fromlist=["ORIGIN"])
    seen.append((name, module.ORIGIN))
threads = [threading.Thread(target=work, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
print(len(seen), {origin for _, origin in seen}, sum(thread.is_alive() for thread in threads))
"""
    for _ in range(5):
        assert shared.prints("-c", code) == "16 {'served'} 0"


@pytest.mark.parametrize(
    ("module", "inside", "asks", "ends"),
    [
        ("json", "json.decoder", "manifest", "served"),
        # For the error message, where vLLM is not the one expected.
        ("importlib.metadata", "importlib.metadata._functools", "installed", "OverlayError"),
    ],
)
def test_no_deadlock_with_a_thread_inside_an_import_of_what_the_finder_needs(
    own: installed.Interpreter, module: str, inside: str, asks: str, ends: str
) -> None:
    """One thread is half-way through an import while the first vllm import asks for the same.

    importlib holds its process-wide lock while it asks a finder. The audit hook stops the thread at
    its next import inside the module, until the other thread waits for that from the finder.
    """
    if ends != "served":
        own.file("vllm/models.py").write_text("edited")
    code = f"""\
import sys, threading, time
inside, asked = threading.Event(), threading.Event()

def hook(event, arguments):
    if event != "import":
        return
    if arguments[0] == {inside!r} and threading.current_thread() is not threading.main_thread():
        inside.set()
        asked.wait(10)
        time.sleep(0.3)
    elif arguments[0] == "vllm_nemo._overlay.{asks}":
        asked.set()

assert {module!r} not in sys.modules, "something else has imported it"
sys.addaudithook(hook)
thread = threading.Thread(target=__import__, args=({module!r},), daemon=True)
thread.start()
assert inside.wait(10)
try:
    import vllm.models
    end = vllm.models.ORIGIN
except RuntimeError as error:
    end = type(error).__name__
thread.join(30)
print(end, asked.is_set(), thread.is_alive())
"""
    assert own.prints("-c", code) == f"{ends} True False"


# Bytecode.

STALE = "ORIGIN = 'stale!'\n"
SERVED = "ORIGIN = 'served'\n"


def _cache_file(environment: installed.Interpreter) -> Path:
    code = "import vllm.engine.core as c; print(c.__spec__.cached)"
    return type(environment.root)(environment.prints("-B", "-c", code))


@pytest.fixture
def one(tmp_path: Path) -> installed.Interpreter:
    """Give an environment whose overlay serves one small module."""
    environment = installed.make(tmp_path / "env")
    installed.write_vllm(environment.site_packages)
    installed.write_overlay(environment.site_packages, served={"vllm/engine/core.py": SERVED})
    return environment


ORIGIN = "import vllm.engine.core as c; print(c.ORIGIN)"


def test_bytecode_is_cached_and_used(one: installed.Interpreter) -> None:
    cache = _cache_file(one)
    assert not cache.exists()
    assert one.prints("-c", ORIGIN) == "served"
    written = cache.read_bytes()
    # Other code under the same header: shown only if the cache is used.
    other = cache.with_name("other.pyc")
    source = one.root / "other.py"
    source.write_text("ORIGIN = 'cached'\n")
    one.prints("-c", f"import py_compile as p; p.compile({str(source)!r}, {str(other)!r})")
    cache.write_bytes(written[:16] + other.read_bytes()[16:])
    assert one.prints("-c", ORIGIN) == "cached"


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_bytecode_of_other_content_with_the_same_time_and_size_is_not_used(
    one: installed.Interpreter, mode: py_compile.PycInvalidationMode
) -> None:
    served, cache = one.served("vllm/engine/core.py"), _cache_file(one)
    times = (served.stat().st_atime_ns, served.stat().st_mtime_ns)
    assert len(STALE) == len(SERVED)
    served.write_text(STALE)
    os.utime(served, ns=times)
    arguments = f"{str(served)!r}, {str(cache)!r}, doraise=True, invalidation_mode=p.{mode}"
    one.prints("-c", f"import py_compile as p; p.compile({arguments})")
    served.write_text(SERVED)
    os.utime(served, ns=times)
    assert one.prints("-c", ORIGIN) == "served"
    assert one.prints("--check-hash-based-pycs", "never", "-c", ORIGIN) == "served"


def test_bytecode_of_the_overlay_before_this_one_is_not_used(one: installed.Interpreter) -> None:
    """Two overlays whose files have one size and one time, as reproducible images make them."""
    served = one.served("vllm/engine/core.py")
    os.utime(served, (1, 1))
    assert one.prints("-c", ORIGIN) == "served"
    after = "ORIGIN = 'newer!'\n"
    served.write_text(after)
    os.utime(served, (1, 1))
    manifest = installed.manifest(served={"vllm/engine/core.py": after})
    one.file("vllm_nemo/manifest.json").write_text(json.dumps(manifest))
    assert one.prints("-c", ORIGIN) == "newer!"


def test_an_environment_that_cannot_be_written_is_served(one: installed.Interpreter) -> None:
    directory = one.served("vllm/engine")
    # A file where the cache directory would be: not even root can write there.
    (directory / "__pycache__").write_text("")
    assert one.prints("-c", ORIGIN) == "served"


def test_neither_source_nor_bytecode_of_stock_vllm_takes_the_place_of_what_is_gone(
    one: installed.Interpreter,
) -> None:
    """The loader looks beside the stock file for data; a served file and its bytecode are none."""
    one.prints("-c", "import vllm.engine.core", env={"NRL_VLLM_OVERLAY": "off"})
    (stock,) = one.file("vllm/engine/__pycache__").glob("core.*.pyc")
    cached = _cache_file(one)
    code = f"""\
import importlib.util, os
spec = importlib.util.find_spec("vllm.engine.core")
os.unlink({str(one.served("vllm/engine/core.py"))!r})
assert os.path.exists({str(stock)!r}) and not os.path.exists({str(cached)!r})
for path in (spec.origin, spec.cached):
    try:
        print(spec.loader.get_data(path))
    except FileNotFoundError:
        print("missing")
"""
    assert one.prints("-c", code).split() == ["missing", "missing"]


def test_bytecode_elsewhere(one: installed.Interpreter, tmp_path: Path) -> None:
    env = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    for _ in range(2):
        assert one.prints("-c", ORIGIN, env=env) == "served"
    assert not (one.served("vllm/engine") / "__pycache__").exists()
    assert list((tmp_path / "cache").rglob("core.*.pyc"))


# Loaders of others.


def test_a_path_hook_with_its_own_loader_loads_served_modules_too(
    shared: installed.Interpreter,
) -> None:
    """As beartype's import hook works: a FileFinder with a loader class that rewrites the code."""
    code = """\
import ast, sys
from importlib.machinery import *

class Tracing(SourceFileLoader):
    def __init__(self, *arguments, mark="traced"):
        super().__init__(*arguments)
        self.mark = mark
    def source_to_code(self, data, path, *, _optimization=-1):
        tree = ast.parse(data)
        tree.body += ast.parse(f"TRACED = {self.mark!r}").body
        return compile(tree, path, "exec")
    def get_code(self, fullname):  # beartype keeps its bytecode apart as well
        return self.source_to_code(self.get_data(self.path), self.path)

sys.path_hooks.insert(0, FileFinder.path_hook(
    (ExtensionFileLoader, EXTENSION_SUFFIXES), (Tracing, SOURCE_SUFFIXES)))
sys.path_importer_cache.clear()
import vllm.models, vllm.plain, vllm.engine, vllm.engine.core
print(vllm.models.ORIGIN, vllm.models.TRACED, vllm.plain.TRACED, vllm.engine.ORIGIN,
      isinstance(vllm.engine.__loader__, Tracing),
      type(vllm.engine.__loader__) is type(vllm.models.__loader__))
"""
    assert shared.prints("-c", code) == "served traced traced served True True"


def test_a_finder_in_front_that_asks_the_others(shared: installed.Interpreter) -> None:
    """As wrapt's post-import hooks work."""
    code = """\
import importlib.util, sys
class Watching:
    busy = set()
    def find_spec(self, fullname, path=None, target=None):
        if fullname in self.busy or not fullname.startswith("vllm"):
            return None
        self.busy.add(fullname)
        try:
            return importlib.util.find_spec(fullname)
        finally:
            self.busy.discard(fullname)
sys.meta_path.insert(0, Watching())
import vllm.models, vllm.engine
print(vllm.models.ORIGIN, vllm.engine.ORIGIN)
from vllm_nemo._overlay.guard import check
check()
"""
    assert shared.prints("-c", code) == "served served"


def test_a_finder_in_front_that_answers_itself_is_caught_by_the_guard(
    shared: installed.Interpreter,
) -> None:
    code = """\
import sys
from importlib.machinery import PathFinder
sys.meta_path.insert(0, PathFinder)
import vllm.models
print(vllm.models.ORIGIN)
from vllm_nemo._overlay.guard import check
check()
"""
    process = shared.run("-c", code)
    assert process.stdout.strip() == "stock"
    assert "vllm.models from" in process.stderr
    assert "OverlayError" in process.stderr
