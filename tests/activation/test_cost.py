"""A process that never imports vLLM pays for one tiny module and reads nothing else of ours."""

from __future__ import annotations

import json
import re

import pytest

from tests.support import installed


def test_only_one_module_is_loaded(shared: installed.Interpreter) -> None:
    process = shared.run("-X", "importtime", "-c", "import sys, os")
    imported = re.findall(r"\| +(\S+)$", process.stderr, re.MULTILINE)
    assert [name for name in imported if name.startswith("vllm")] == ["vllm_nemo"]


def test_it_imports_nothing_that_was_not_there(own: installed.Interpreter) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    with_it = set(own.prints("-c", code).split())
    own.file("vllm_nemo.pth").write_text("import sys\n")  # some Pythons need a codec to read it
    without_it = set(own.prints("-c", code).split())
    assert with_it - without_it == {"vllm_nemo"}


def test_it_allocates_a_few_objects(own: installed.Interpreter) -> None:
    """Counted in blocks, so neither a busy machine nor a table that just then doubles matters."""

    def allocated() -> int:
        arguments = ("-c", "import sys; print(sys.getallocatedblocks())")
        env = {"PYTHONHASHSEED": "0"}
        own.prints(*arguments, env=env)  # the second run has the bytecode
        return int(own.prints(*arguments, env=env))

    with_it = allocated()
    own.file("vllm_nemo.pth").write_text("import sys\n")
    assert 0 < with_it - allocated() < 250


# The .pth file itself is read by site; an audit hook of a sitecustomize or .pth that sorts before
# ours sees every file that is opened from then on.
_WATCH = """\
import sys
opened = []
def hook(event, arguments):
    if event == "open":
        opened.append(str(arguments[0]))
sys.addaudithook(hook)
sys.watched = opened
"""


@pytest.mark.parametrize(
    "code", ["import json, pathlib, importlib.util", "import this_is_not_there"]
)
def test_no_other_file_of_ours_is_opened(own: installed.Interpreter, code: str) -> None:
    own.file("a_watch.pth").write_text("import a_watch\n")
    own.file("a_watch.py").write_text(_WATCH)
    program = f"""\
import json, sys
try:
    {code}
except ModuleNotFoundError:
    pass
print(json.dumps(sys.watched))
"""
    own.prints("-c", program)  # the second run has the bytecode
    opened = json.loads(own.prints("-c", program))
    ours = [path for path in opened if "vllm" in path.removeprefix(str(own.site_packages))]
    cached = [path for path in ours if path.endswith(".pyc")]
    assert len(cached) == 1, ours
    assert "vllm_nemo/__pycache__/__init__." in cached[0]
    # In a virtual environment some Pythons read every .pth file twice; 3.15 reads all of them
    # before it runs a line of the first.
    assert {path for path in ours if path not in cached} <= {str(own.file("vllm_nemo.pth"))}


def test_the_first_import_of_vllm_loads_what_serving_needs_and_no_more(
    shared: installed.Interpreter,
) -> None:
    """Neither the doctor nor importlib.metadata, which brings the mail package and forty more."""
    names = shared.prints("-c", "import vllm.models, sys; print(*sys.modules)").split()
    machinery = (
        *(
            "errors",
            "files",
            "finder",
            "frozen",
            "loader",
            "manifest",
            "outcomes",
            "stock",
            "switches",
        ),
        *("content", "loaded", "refusal", "whole"),
    )
    expected = {"vllm_nemo", "vllm_nemo._overlay", *(f"vllm_nemo._overlay.{m}" for m in machinery)}
    assert {name for name in names if name.startswith("vllm_nemo")} == expected
    assert not {"importlib.metadata", "email", "subprocess", "argparse"} & set(names)


def test_switched_off_vllm_costs_no_read_of_the_manifest(own: installed.Interpreter) -> None:
    own.file("vllm_nemo/manifest.json").unlink()
    code = "import vllm.models as m; print(m.ORIGIN)"
    assert own.prints("-c", code, env={"NRL_VLLM_OVERLAY": "off"}) == "stock"


def test_a_stock_file_is_read_once(own: installed.Interpreter) -> None:
    """By the import of vLLM; its module, the guard and require() find it as it was."""
    own.file("a_watch.pth").write_text("import a_watch\n")
    own.file("a_watch.py").write_text(_WATCH)
    program = """\
import json, sys
import vllm.models
from vllm_nemo import require
from vllm_nemo._overlay import guard
guard.check()
require("first")
print(json.dumps(sys.watched))
"""
    opened = json.loads(own.prints("-c", program))
    for path in ("vllm/models.py", "vllm/engine/__init__.py", "vllm/engine/core.py"):
        assert opened.count(str(own.file(path))) == 1, path


def test_an_import_from_vllm_looks_once_for_each_patched_module(
    shared: installed.Interpreter,
) -> None:
    """What the overlay does for a module that it does not serve, counted in calls."""
    code = """\
import sys, vllm.models, vllm.engine, vllm.plain
del sys.modules["vllm.plain"]
calls = []
def profile(frame, event, argument):
    if event in ("call", "c_call") and "vllm_nemo" in frame.f_code.co_filename:
        calls.append(event)
sys.setprofile(profile)
import vllm.plain
sys.setprofile(None)
print(calls.count("call"), calls.count("c_call"))
"""
    python, c = map(int, shared.prints("-c", code).split())
    assert 0 < python <= 8
    # Of each: whether it is loaded, its spec, and whether that has been seen.
    assert 0 < c <= 3 * len(installed.SERVED) + 8
