"""The modules of the build import one way: from the lines above their own, as the packages say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import build_hooks

ROOT = Path(build_hooks.__file__).parent


def order(package: Path, prefix: str = "build_hooks") -> dict[str, tuple[int, ...]]:
    """Read the place of each module from the table in its package's docstring."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    table = docstring.split("::\n", 1)[1]
    places: dict[str, tuple[int, ...]] = {prefix: (-1,)}
    for number, line in enumerate(line for line in table.splitlines() if line.strip()):
        for name in re.split(r", ", re.split(r" {2,}", line.strip())[0]):
            if (package / name).is_dir():
                inside = order(package / name, f"{prefix}.{name}")
                places |= {module: (number, *place) for module, place in inside.items()}
            else:
                places[f"{prefix}.{name}"] = (number,)
    return places


def imported(file: Path) -> set[str]:
    """Return the modules of the build that a file imports, wherever in it, for types as well."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return {name for name in names if name.split(".")[0] == "build_hooks"}


def test_every_module_has_a_place_and_imports_only_from_above_it() -> None:
    places = order(ROOT)
    modules = {
        ".".join(("build_hooks", *file.relative_to(ROOT).with_suffix("").parts)): file
        for file in ROOT.rglob("*.py")
        if file.name != "__init__.py"
    }
    packages = {name for name, place in places.items() if place[-1] == -1}
    assert set(places) - packages == set(modules)
    wrong = {
        (module, name)
        for module, file in modules.items()
        for name in imported(file) & set(places)
        if name != "build_hooks" and not (places[name] < places[module] or name in packages)
    }
    assert not wrong
