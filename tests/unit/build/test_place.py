"""Modules that find files by their own place: found, decided upon, or refused."""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_hooks.assembly import place
from build_hooks.assembly.assemble import Overlay, assemble
from build_hooks.assembly.tree import Module
from build_hooks.bases.directory import from_directory
from build_hooks.bases.wheel import from_wheel
from build_hooks.errors import ConflictError, QueueError
from build_hooks.queues.stack import stack
from tests.support import foreign, stand_in

if TYPE_CHECKING:
    from collections.abc import Mapping

TUNING = "vllm/engine/tuning.py"
CONFIGS = "vllm/engine/configs"
# A line of the module, which says where it lies.
CHANGED = """\
--- a/vllm/engine/tuning.py
+++ b/vllm/engine/tuning.py
@@ -1,2 +1,3 @@
 import os
+import re
\x20
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("open(__file__)", [(1, "__file__", True)]),
        (
            "x = 1\nn = __spec__.origin, __loader__",
            [(2, "__spec__", False), (2, "__loader__", False)],
        ),
        ("import vllm.a\nvllm.a.__file__", [(2, "vllm.a.__file__", False)]),
        ("sys.modules[__name__].__file__", [(1, "sys.modules[__name__].__file__", False)]),
        ("list(vllm.a.__path__)", [(1, "vllm.a.__path__", False)]),
        ("inspect.getfile(Model)", [(1, "inspect.getfile", False)]),
        ("f'{__file__}'", [(1, "__file__", False)]),
        ("'é', __file__", [(1, "__file__", True)]),
        # Of other packages, of the loader, and of what is only set.
        ("torch.__file__", []),
        ("iter_modules(__path__)", []),
        ("__spec__.name, __spec__.parent", []),
        ("importlib.resources.files('vllm')", []),
        ("__file__ = 'x'", []),
        ("'__file__'  # __file__", []),
    ],
)
def test_what_asks_for_the_place(source: str, found: list[tuple[int, str, bool]]) -> None:
    uses = place.uses(source.encode())
    assert [(use.line, use.asks, use.plain) for use in uses] == found


@given(st.lists(st.sampled_from(["__file__", "'é__file__'", "os", "(__file__,\n__file__)"])))
def test_only_the_plain_name_is_replaced(parts: list[str]) -> None:
    source = f"x = [{', '.join(parts)}]\n"
    made = place.redirect(source.encode()).decode()
    assert made.count("\n") == source.count("\n")
    there = {"__file__": "overlay", "os": "os"}
    loader = types.SimpleNamespace(stock_file="stock")
    there["__spec__"] = types.SimpleNamespace(loader=loader)  # type: ignore[assignment]
    before: dict[str, Any] = dict(there, __file__="stock")
    after: dict[str, Any] = dict(there)
    exec(source, before)  # noqa: S102
    exec(made, after)  # noqa: S102
    assert after["x"] == before["x"]


def queue(root: Path, answers: Mapping[str, object] | None, **diffs: str) -> Path:
    """Write the project's empty queue, and one with a patch that has a [place] table."""
    importer = foreign.Importer.make(root)
    series = {"name": "acme", "revision": 1, "releases": [foreign.RELEASE]}
    for number, text in enumerate(diffs.values()):
        table = {"title": "It", "vllm": ">=0.25.0"}
        if answers is not None and not number:
            table["place"] = answers  # type: ignore[assignment]
        name = list(diffs)[number]
        files = {"patch.toml": stand_in.toml(table), f"{foreign.RELEASE}.patch": text}
        stand_in.write(importer.directory / "patches" / name, files)
    series["patches"] = list(diffs)
    stand_in.write(importer.directory, {"series.toml": stand_in.toml(series)})
    return root


def build(root: Path, **files: str | None) -> Overlay:
    sources = {path: text for path, text in (foreign.FILES | files).items() if text is not None}
    base = from_directory(stand_in.write(root / "base", sources))
    return assemble(stack(root / "overlay", [root / "acme"]), base)


def refused(root: Path, **files: str | None) -> str:
    with pytest.raises(ConflictError) as raised:
        build(root, **files)
    (conflict,) = raised.value.conflicts
    return f"{conflict.patch} {conflict.file}: {conflict.message}"


def test_a_module_that_nobody_decided_upon_is_refused(tmp_path: Path) -> None:
    told = refused(queue(tmp_path, None, it=CHANGED))
    assert told.startswith(
        f"it {TUNING}: line 4 (__file__): the module finds files by its own place"
    )
    assert f'"{TUNING}" = "stock"' in told


def test_a_module_that_looks_beside_vllms_own_file(tmp_path: Path) -> None:
    (made,) = build(queue(tmp_path, {TUNING: "stock"}, it=CHANGED)).files
    assert isinstance(made, Module)
    assert b"realpath(__spec__.loader.stock_file))" in made.served
    assert b"__file__" not in made.served


def test_a_module_that_keeps_its_place_has_its_data_with_it(tmp_path: Path) -> None:
    made = build(queue(tmp_path, {TUNING: ["configs"]}, it=CHANGED))
    (data,) = made.data
    assert (data.path, data.stock, data.served) == (f"{CONFIGS}/E=1.json", b"{}\n", b"{}\n")
    (module,) = made.modules
    assert b"__file__" in module.served
    # From a wheel as from a directory.
    base = from_wheel(tmp_path / "wheels" / f"vllm-{foreign.RELEASE}-py3-none-any.whl")
    assert assemble(made.stack, base).files == made.files


def test_a_module_that_needs_no_data(tmp_path: Path) -> None:
    (made,) = build(queue(tmp_path, {TUNING: []}, it=CHANGED)).files
    assert b"__file__" in made.served


def test_data_that_nothing_would_find_is_refused(tmp_path: Path) -> None:
    new = f"{CONFIGS}/E=2.json"
    told = refused(queue(tmp_path, None, it=foreign.added(new, line="{}")))
    assert told.startswith(f"it {new}: no module would find this data")
    # The module that looks for it is named.
    assert told.endswith(f'perhaps: "{TUNING}" = ["configs"]')


def test_data_is_found_by_a_module_that_is_served_for_it(tmp_path: Path) -> None:
    new = f"{CONFIGS}/E=2.json"
    made = build(queue(tmp_path, {TUNING: ["configs"]}, it=foreign.added(new, line="{}")))
    assert [data.path for data in made.data] == [f"{CONFIGS}/E=1.json", new]
    (module,) = made.modules
    assert module.path == TUNING
    assert module.stock is not None
    assert module.served.startswith(module.stock)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({TUNING: ["tables"]}, "[place] names tables, and no data is there"),
        ({TUNING: ["core.py"]}, "[place] names core.py, and no data is there"),
        ({"vllm/gone.py": "stock"}, "[place] names it, and there is no such file"),
        ({"vllm/m.py": "stock", TUNING: []}, 'the overlay adds it, so [place] cannot be "stock"'),
    ],
)
def test_an_answer_that_does_not_fit(tmp_path: Path, answers: dict[str, object], told: str) -> None:
    text = CHANGED + foreign.added("vllm/m.py")
    assert told in refused(queue(tmp_path, {TUNING: [], **answers}, it=text))


def test_what_cannot_be_replaced_is_changed_by_hand(tmp_path: Path) -> None:
    root = queue(tmp_path, {TUNING: "stock"}, it=CHANGED.replace("import re", "O = __spec__"))
    assert 'line 2 (__spec__): [place] is "stock", which can replace only' in refused(root)


def test_two_patches_have_one_answer(tmp_path: Path) -> None:
    after = CHANGED.replace("import os\n+import re", "import re\n+import json").replace(
        "@ -1", "@ -2"
    )
    root = queue(tmp_path, {TUNING: "stock"}, it=CHANGED, other=after)
    build(root)
    table = {"title": "It", "vllm": ">=0.25.0", "place": {TUNING: []}}
    toml = root / "acme" / "patches" / "other" / "patch.toml"
    toml.write_text(stand_in.toml(table))
    assert '[place] is [] here, and "stock" in it' in refused(root)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"vllm/a.txt": "stock"}, "must be a module, as vllm/...py"),
        ({"a.py": "stock"}, "must be a module, as vllm/...py"),
        ({TUNING: "overlay"}, 'must be "stock", or a list'),
        ({TUNING: 1}, 'must be "stock", or a list'),
        ({TUNING: ["../x"]}, 'must be "stock", or a list'),
        ({TUNING: [1]}, 'must be "stock", or a list'),
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, answer: dict[str, object], told: str) -> None:
    with pytest.raises(QueueError) as raised:
        build(queue(tmp_path, answer, it=CHANGED))
    assert told in str(raised.value)


def test_an_import_decides_and_has_a_person_look_at_it(tmp_path: Path) -> None:
    importer = foreign.Importer.make(tmp_path)
    assert importer.bring(CHANGED, id="it") == 0
    (patch,) = importer.patches
    assert patch.place == {TUNING: "stock"}
    assert len(patch.review) == 1
    assert importer.overlay().data == ()
    assert importer.bring(foreign.added("vllm/dos.txt"), id="lost") == 1
