"""The order of the run-time package's modules, which its own docstring tells, holds."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import vllm_nemo
from vllm_nemo import _overlay

PACKAGE = Path(vllm_nemo.__file__).parent
MACHINERY = "vllm_nemo._overlay"


def _name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Without the hooks for PyInstaller, which are scripts.
MODULES = {_name(file): file for file in PACKAGE.rglob("*.py") if "hooks" not in file.parts}


def _named(file: Path) -> set[str]:
    """Return the modules of the package that a file imports or names, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # For import_unlocked.
            found.add(node.value)
    return found & set(MODULES)


def _order() -> list[list[str]]:
    """Read the list in the docstring: names of one line may not import each other either way."""
    assert _overlay.__doc__ is not None
    entries = re.findall(r"(?m)^    (\w+(?:, \w+)*)(?:  .*)?$", _overlay.__doc__)
    return [entry.split(", ") for entry in entries]


ORDER = [name for entry in _order() for name in entry]


def test_every_module_has_its_place() -> None:
    found = {name.split(".")[2] for name in MODULES if name.startswith(f"{MACHINERY}.")}
    assert sorted(found) == sorted(ORDER)


@pytest.mark.parametrize("place", ORDER)
def test_a_module_imports_only_modules_before_it(place: str) -> None:
    allowed = {*ORDER[: ORDER.index(place)], place}
    own = [name for name in MODULES if f"{name}.".startswith(f"{MACHINERY}.{place}.")]
    for name in own:
        machinery = {m for m in _named(MODULES[name]) if m.startswith(f"{MACHINERY}.")}
        assert {m.split(".")[2] for m in machinery} <= allowed, name


def test_inside_a_package_of_the_machinery_imports_go_one_way() -> None:
    for package in ("doctor", "commands", "freezing"):
        prefix = f"{MACHINERY}.{package}."
        left = {
            name: {m for m in _named(MODULES[name]) if m.startswith(prefix)} - {name}
            for name in MODULES
            if name.startswith(prefix)
        }
        while left:
            free = {name for name, imports in left.items() if not imports & set(left)}
            assert free, f"a cycle among {sorted(left)}"
            left = {name: imports for name, imports in left.items() if name not in free}


def test_the_machinery_knows_no_patch_and_no_public_module() -> None:
    for name, file in MODULES.items():
        if name.startswith(MACHINERY):
            others = {m for m in _named(file) if not m.startswith(MACHINERY)}
            assert others <= {"vllm_nemo"}, name


def test_patches_know_only_errors_and_switches() -> None:
    allowed = {"vllm_nemo", MACHINERY, f"{MACHINERY}.errors", f"{MACHINERY}.switches"}
    for name, file in MODULES.items():
        if name.startswith("vllm_nemo.patches"):
            others = {m for m in _named(file) if not m.startswith("vllm_nemo.patches")}
            assert others <= allowed, name


# Ours is found through vllm_nemo, so whatever else begins with these would be a partner's.
_IMPORT_ALL = """\
import importlib, json, sys

asked = []

class Watching:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("vllm", "torch", "transformers", "ray", "openai", "zmq"):
            asked.append(name)

sys.meta_path.insert(0, Watching())
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(asked))
"""


def test_no_module_imports_vllm_or_torch_when_it_is_imported() -> None:
    names = json.dumps(sorted(MODULES))
    command = [sys.executable, "-c", _IMPORT_ALL, names]
    told = subprocess.check_output(command, cwd=PACKAGE.parent, text=True)
    assert json.loads(told) == []
