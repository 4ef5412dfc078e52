"""What diffs import and call of the run-time package is looked up: in lint, in lock, in a build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_hooks import build, cli
from build_hooks.errors import BuildError, QueueError
from build_hooks.queues.reader import load
from tests.support import stand_in

if TYPE_CHECKING:
    from tests.support.project import Small

ONE = """\
import os as system

def call(x): ...
async def later(x): ...
class Kind: ...
LIMIT: int = 1
first, (second, third) = 1, (2, 3)
try:
    import fast
except ImportError:
    fast = None
"""
PACKAGE = {
    "package/__init__.py": "from vllm_nemo.patches.package.inside import deep\n",
    "package/inside.py": "def deep(x): ...\n",
}
HOME = "patches/one/"
DIFF = f"{HOME}0.25.0.patch"
FILE = "vllm/models.py"


def queue(root: Path, lines: Sequence[str], module: str = "one", **modules: str) -> Path:
    """Write a queue of one patch that adds some lines, and the modules that are there."""
    text = f"--- a/{FILE}\n+++ b/{FILE}\n@@ -1,1 +1,{len(lines) + 1} @@\n"
    text += "".join(f"+{line}\n" for line in lines) + " import math\n"
    stand_in.write_series(root, ["one"])
    fields = {"module": f"vllm_nemo.patches.{module}" if module else None}
    stand_in.write_patch(root, "one", {"0.25.0": text}, **fields)
    files = {"__init__.py": "", "shared/__init__.py": "", **(modules or {"one.py": ONE})}
    stand_in.write(root / "vllm_nemo" / "patches", files)
    return root


def faults(root: Path) -> list[str]:
    with pytest.raises(QueueError) as raised:
        load(root)
    return [str(problem) for problem in raised.value.problems]


@pytest.mark.parametrize(
    "lines",
    [
        ["from vllm_nemo.patches.one import call, later, Kind, LIMIT, first, second, third, fast"],
        ["from vllm_nemo.patches.one import call as c, system", "c(system)"],
        ["from vllm_nemo.patches import one", "", "x = one.call(one.LIMIT) + 1"],
        ["import vllm_nemo.patches.one", "vllm_nemo.patches.one.call(1)"],
        ["import vllm_nemo.patches.one as logic", "if logic.LIMIT: logic.call(2)"],
        ["from vllm_nemo.patches.one import (", "    call,", "    Kind,  # for later", ")"],
        ["def f():", "    from vllm_nemo.patches import one", "    return one.call(", "    1)"],
        ["from vllm_nemo.patches import one", "x = self.one.no_module, 'one.no', 2  # one.no"],
        ["from vllm_nemo.patches import one", "another.vllm_nemo.patches.one.call"],
    ],
)
def test_names_that_are_there_are_found(tmp_path: Path, lines: list[str]) -> None:
    (patch,) = load(queue(tmp_path, lines)).patches
    assert patch.module == "vllm_nemo.patches.one"


def test_a_package_is_a_module_with_what_it_imports(tmp_path: Path) -> None:
    lines = [
        "from vllm_nemo.patches.package import deep, inside",
        "from vllm_nemo.patches.package.inside import deep as the_same",
        "inside.deep(1)",
    ]
    load(queue(tmp_path, lines, "package", **PACKAGE))
    queue(tmp_path, [*lines, "inside.deeper(1)"], "package", **PACKAGE)
    assert faults(tmp_path) == [
        f"{DIFF}: {FILE} uses vllm_nemo.patches.package.inside.deeper, which does not exist"
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["from vllm_nemo.patches.one import cal"], "one.cal, which does not exist"),
        (["from vllm_nemo.patches.one import call, *"], "cannot be read"),
        (["from vllm_nemo.patches.one import *"], "one.*, which does not exist"),
        (["from vllm_nemo.patches.one import (", "    call,", "    cal,", ")"], "one.cal, which"),
        (["from vllm_nemo.patches import one", "one.cal(1)"], "one.cal, which does not exist"),
        (["from vllm_nemo.patches import one as o", "f(o.call, o.cal)"], "one.cal, which does"),
        (["import vllm_nemo.patches.one", "vllm_nemo.patches.one.cal()"], "one.cal, which does"),
        (["import vllm_nemo.patches.one as o", "o . cal()"], "one.cal, which does not exist"),
        (["import math, vllm_nemo.patches.one as o", "o.cal()"], "one.cal, which does not exist"),
        (["import math; from vllm_nemo.patches.one import cal"], "one.cal, which does not exist"),
        (["if x: from vllm_nemo.patches.one import call"], "cannot be read: write it on a line"),
        (["else: from vllm_nemo.patches.one import call"], "cannot be read: write it on a line"),
        (["vllm_nemo.patches.one.call()"], "without an import"),
        (["from vllm_nemo.patches import on"], "patches.on, but patch.toml names vllm_nemo.pa"),
        (["from vllm_nemo.patches.other import call"], "patches.other, but patch.toml names vll"),
        (["from vllm_nemo.patches.shared.ports import call"], "shared.ports, but patch.toml names"),
        (["from vllm_nemo import require"], "uses vllm_nemo.require, but patch.toml names"),
        (["import vllm_nemo"], "uses vllm_nemo, but patch.toml names vllm_nemo.patches.one"),
        (["from vllm_nemo.patches.one.inside import x"], "one.inside, which does not exist"),
    ],
)
def test_a_name_that_is_not_there_is_named_with_its_diff(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    # Whatever else is wrong, something of the patch's own module is used.
    own = "from vllm_nemo.patches.one import LIMIT"
    found = faults(queue(tmp_path, [own, *lines]))
    assert len(found) == 1
    assert found[0].startswith(f"{DIFF}: {FILE} ")
    assert said in found[0]


def test_each_variant_is_looked_at(tmp_path: Path) -> None:
    root = queue(tmp_path, ["from vllm_nemo.patches.one import call"])
    diff = (root / DIFF).read_text()
    stand_in.write(root / HOME, {"0.29.0.patch": diff.replace("import call", "import gone")})
    (fault,) = faults(root)
    assert fault.startswith(f"{HOME}0.29.0.patch: ")


TOML = f"{HOME}patch.toml: module: "


def test_a_patch_and_its_module_name_each_other(tmp_path: Path) -> None:
    use = ["from vllm_nemo.patches.one import call"]
    assert faults(queue(tmp_path / "a", use, "two")) == [
        f"{TOML}vllm_nemo.patches.two does not exist"
    ]
    assert faults(queue(tmp_path / "b", ["import os"])) == [
        f"{TOML}no diff uses vllm_nemo.patches.one"
    ]
    assert faults(queue(tmp_path / "c", use, "")) == [
        f"{DIFF}: {FILE} uses vllm_nemo.patches.one, but patch.toml names no module"
    ]


def test_a_module_that_no_patch_names_is_a_stray(tmp_path: Path) -> None:
    use = ["from vllm_nemo.patches.one import call"]
    more = {
        "one.py": ONE,
        "two.py": "",
        "three/__init__.py": "",
        "four/deep/five.py": "",
        "shared/six.py": "",
    }
    stand_in.write(tmp_path / "vllm_nemo/patches", {"__pycache__/seven.pyc": "", "notes.md": ""})
    assert faults(queue(tmp_path, use, **more)) == [
        f"vllm_nemo/patches/{name}: is no patch's module, and is not in patches/shared"
        for name in ("four", "three", "two.py")
    ]


@pytest.mark.parametrize("source", ["def call(x:\n", "x = '\0'\n", "# coding: nothing\n"])
def test_a_module_that_is_no_python_is_named(tmp_path: Path, source: str) -> None:
    use = ["from vllm_nemo.patches.one import call"]
    (fault,) = faults(queue(tmp_path, use, **{"one.py": source}))
    assert fault.startswith("vllm_nemo/patches/one.py: is not Python: ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["from vllm_nemo.patches.one import cal"], "uses vllm_nemo.patches.one.cal, which does"),
        (["from vllm_nemo.patches import one", "one.cal(1)"], "uses vllm_nemo.patches.one.cal, w"),
    ],
)
def test_lint_lock_and_build_refuse_it(
    project: Small, capsys: pytest.CaptureFixture[str], lines: list[str], message: str
) -> None:
    queue(project.queue, lines)
    for name in stand_in.PATCHES:
        for file in (project.queue / "patches" / name).iterdir():
            file.unlink()
        (project.queue / "patches" / name).rmdir()
    for command in (["lint"], ["lock", "0.29.0"], ["build", "0.29.0"], ["status"], ["docs"]):
        assert cli.main(command, project) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(BuildError, match=message):
        build.identify(project, build.Settings("0.29.0"))


def test_a_diff_that_is_longer_than_a_hook_gives_its_reason(tmp_path: Path) -> None:
    hook = ["from vllm_nemo.patches.one import call", *(f"call({n})" for n in range(9))]
    load(queue(tmp_path / "hook", hook))
    (fault,) = faults(queue(tmp_path / "logic", [*hook, "call(9)"]))
    assert fault.startswith(f"{DIFF}: adds 11 lines to {FILE}; a hook adds 10 at most: ")

    def explain(root: Path) -> None:
        toml = root / HOME / "patch.toml"
        toml.write_text('logic = "It changes who calls whom."\n' + toml.read_text())

    explain(tmp_path / "logic")
    (patch,) = load(tmp_path / "logic").patches
    assert patch.logic == "It changes who calls whom."
    explain(tmp_path / "hook")
    assert faults(tmp_path / "hook") == [
        f"{HOME}patch.toml: logic: is not needed: no diff adds more than 10 lines to a file"
    ]
