"""What a person has to look at on another base: functions, names, findings, conditions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_hooks.assembly.tree import Module
from build_hooks.bases.directory import from_directory
from build_hooks.errors import QueueError
from build_hooks.queues.model import Condition
from build_hooks.review import source
from build_hooks.review.conditions import met
from build_hooks.review.drift import Drift, drift, hooked
from build_hooks.review.findings import findings
from build_hooks.review.names import missing
from build_hooks.review.worklist import as_text, worklist
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from tests.support.project import Small

MODELS = "vllm/models.py"


def base(root: Path, **modules: str | None) -> Base:
    return from_directory(stand_in.write(root / "base", stand_in.sources("0.29.0", **modules)))


def test_the_functions_that_hunks_lie_in(project: Small) -> None:
    assert hooked(project.load(), project.open("0.26.0")) == {
        (MODELS, "Model.forward"): ("sqrt",),
        ("vllm/engine/__init__.py", "run"): ("sqrt",),
        (MODELS, "Model.scale"): ("scale",),
        (MODELS, "Head.forward"): ("head",),
    }


def test_a_function_has_changed_if_its_statements_have(project: Small) -> None:
    # Of Model.scale a comment is another; of Head.forward, what it returns.
    found = drift(project.load(), project.open("0.26.0"), project.open("0.29.0"))
    assert found == [Drift(MODELS, "Head.forward", ("head",), "changed")]


def test_a_function_that_is_gone(project: Small) -> None:
    text = stand_in.sources("0.29.0")[MODELS].replace("def forward", "def forwards", 1)
    other = base(project.root, models=text, **{"engine/__init__": None})
    found = {
        (one.path, one.function): one.what for one in drift(project.load(), project.open(), other)
    }
    assert found == {
        (MODELS, "Model.forward"): "gone",
        ("vllm/engine/__init__.py", "run"): "gone",
    }


SOURCE = '''\
class A:
    """A class."""

    @staticmethod
    def f(x):
        """Say it."""
        def g():
            return 1

        return g() + x


async def h():
    """Only this."""
'''


def test_functions_have_names_and_lines() -> None:
    found = source.functions(SOURCE.encode())
    assert {name: (one.first, one.last) for name, one in found.items()} == {
        "A.f": (4, 10),
        "A.f.g": (7, 8),
        "h": (13, 14),
    }


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Say it."""', '"""Say it otherwise."""', True),
        ('        """Say it."""\n', "", True),
        ("return g() + x", "return g() + x  # why", True),
        ("return g() + x", "return (\n            g() + x\n        )", True),
        ("return 1", "return 2", False),
        ("def f(x)", "def f(x, y=0)", False),
        ("@staticmethod", "@classmethod", False),
    ],
)
def test_what_counts_as_a_change(old: str, new: str, same: bool) -> None:
    assert old in SOURCE
    before = source.functions(SOURCE.encode())["A.f"]
    after = source.functions(SOURCE.replace(old, new).encode())["A.f"]
    assert (before.content == after.content) == same


@given(st.binary(max_size=200))
def test_any_content_is_looked_at(content: bytes) -> None:
    source.functions(content)


USES = """\
import vllm.models
import vllm.gone
from vllm import engine, nothing
from vllm.models import Model, Modell
from vllm.engine import run as runs
try:
    from vllm.guarded import x
except ImportError:
    from vllm.other import x
try:
    from vllm.fails import y
except ValueError:
    pass


def f():
    from vllm.within import z
    from other.vllm import a
"""


def test_names_that_a_base_does_not_have(tmp_path: Path) -> None:
    file = stand_in.write(tmp_path, {"logic.py": USES}) / "logic.py"
    found = [(one.line, one.name) for one in missing(base(tmp_path), [file])]
    assert found == [
        (2, "vllm.gone"),
        (3, "vllm.nothing"),
        (4, "vllm.models.Modell"),
        (11, "vllm.fails.y"),
        (17, "vllm.within.z"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Name = 1\n",
        "Name: int = 1\n",
        "a, (Name, b) = 1, (2, 3)\n",
        "import os as Name\n",
        "from os import path as Name\n",
        "if X:\n    pass\nelse:\n    class Name: pass\n",
        "try:\n    import a\nexcept ImportError:\n    Name = None\n",
        "with a:\n    async def Name(): pass\n",
        "from os import *\n",
        "def __getattr__(name): return 1\n",
    ],
)
def test_a_name_that_a_module_binds_in_any_way_is_there(tmp_path: Path, text: str) -> None:
    file = stand_in.write(tmp_path, {"logic.py": "from vllm.m import Name\n"}) / "logic.py"
    assert missing(base(tmp_path, m=text), [file]) == []
    assert missing(base(tmp_path / "2", m="def f():\n    Name = 1\n"), [file]) != []


def test_findings_are_those_that_stock_has_not() -> None:
    stock = b"import os\nimport re\n\nprint(re)\n"
    served = b"import os\nimport re\nimport sys\n\nprint(re, undefined)\n"
    module = Module("vllm/m.py", stock, served, ("it",))
    assert sorted(findings([module])) == [
        ("vllm/m.py", "'sys' imported but unused"),
        ("vllm/m.py", "undefined name 'undefined'"),
    ]


METADATA = """\
Metadata-Version: 2.1
Name: vllm
Version: 0.29.0
Requires-Dist: openai<3,>=2.25.0
Requires-Dist: ray>=3; extra == "ray"
Requires-Dist: not a requirement ;;
"""


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition(requires="openai>=2.25"), True),
        (Condition(requires="openai>=2.24"), True),
        (Condition(requires="openai>=2.26"), False),
        (Condition(requires="ray>=2"), False),
        (Condition(requires="torch>=2"), False),
        (Condition(symbol="vllm.models:Model"), True),
        (Condition(symbol="vllm.models:Model.scale"), True),
        (Condition(symbol="vllm.models:UNUSED"), True),
        (Condition(symbol="vllm.models:Model.other"), False),
        (Condition(symbol="vllm.gone:Model"), False),
        (Condition(call="vllm.models:math.sqrt"), True),
        (Condition(call="vllm.models:sqrt"), True),
        (Condition(call="vllm.engine:Model"), True),
        (Condition(call="vllm.models:qrt"), False),
    ],
)
def test_conditions(project: Small, tmp_path: Path, condition: Condition, holds: bool) -> None:
    files = {**stand_in.sources("0.29.0"), "PKG-INFO": METADATA}
    other = from_directory(stand_in.write(tmp_path / "other", files))
    patch = replace(project.load().patches[0], remove_when=(condition,))
    found = met(patch, other)
    assert bool(found) == holds
    assert found in ([], [str(condition)])


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"requires": "a b"}, "'a b' is no requirement"),
        ({"symbol": "vllm.models"}, "must be vllm.module:name"),
        ({"call": "os:path"}, "must be vllm.module:name"),
        ({"symbol": "vllm:a", "call": "vllm:b"}, "must have one of requires, symbol, call"),
        ({"text": "x"}, "is unknown"),
    ],
)
def test_a_condition_that_is_none(project: Small, entry: dict[str, Any], told: str) -> None:
    fields = {"remove-when": [entry]}
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    with pytest.raises(QueueError) as raised:
        project.load()
    assert told in str(raised.value)


def test_all_of_it_is_one_list(project: Small) -> None:
    fields = {"remove-when": [{"symbol": "vllm.models:Head"}]}
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    shared = project.queue / "vllm_nemo" / "patches" / "shared"
    stand_in.write(shared, {"logic.py": "import vllm.gone\n"})
    found = worklist(project.load(), project.open("0.26.0"), project.open(), project.root)
    assert [(item.kind, item.where) for item in found] == [
        ("function", f"{MODELS}: Head.forward"),
        ("name", "overlay/vllm_nemo/patches/shared/logic.py:1"),
        ("can go", "sqrt"),
    ]
    assert "vLLM 0.29.0 has no vllm.gone" in as_text(found)
    assert as_text([]) == "nothing to look at"
