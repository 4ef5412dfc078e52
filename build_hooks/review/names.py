"""The names of vLLM that the logic of patches imports, and that a base does not have."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.review import source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from build_hooks.bases.base import Base

# Handlers of an import that may fail: its author knows that some releases lack the name.
_EXPECTED = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}


@dataclass(frozen=True)
class Missing:
    """An import that a base cannot satisfy.

    Attributes:
        file: The file that imports.
        line: The line of the import.
        name: What is missing: a module, or a module and a name in it.
    """

    file: Path
    line: int
    name: str


def missing(base: Base, files: Iterable[Path]) -> list[Missing]:
    """Find the imports of vLLM that a base cannot satisfy.

    Args:
        base: The base.
        files: Python sources.

    Returns:
        The imports that nothing guards, in the order of the files and lines.
    """
    found = []
    for file in files:
        for line, module, name in _imports(source.parse(file.read_bytes()).body):
            what = f"{module}.{name}" if name else module
            if not _has(base, module, name):
                found.append(Missing(file, line, what))
    return sorted(found, key=lambda one: (one.file, one.line, one.name))


def _imports(body: Iterable[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Go through the imports of vLLM: the line, the module, and a name in it or nothing."""
    for node in body:
        if isinstance(node, ast.Try) and any(map(_expects, node.handlers)):
            yield from _imports([*node.orelse, *node.finalbody])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_vllm(alias.name):
                    yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level and _is_vllm(node.module):
                for alias in node.names:
                    yield node.lineno, node.module, alias.name
        else:
            yield from _imports(ast.iter_child_nodes(node))


def _expects(handler: ast.ExceptHandler) -> bool:
    names = [node.id for node in ast.walk(handler.type or handler) if isinstance(node, ast.Name)]
    return handler.type is None or bool(_EXPECTED.intersection(names))


def _is_vllm(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "vllm"


def _has(base: Base, module: str, name: str) -> bool:
    path = module.replace(".", "/")
    content = base.read(f"{path}/__init__.py")
    if content is None:
        content = base.read(f"{path}.py")
        if content is None:
            # A package without __init__.py has modules all the same.
            return bool(name) and _is_module(base, f"{path}/{name}")
    if not name or name == "*":
        return True
    names = set(_bound(source.parse(content).body))
    # A module-level __getattr__ and "import *" can give any name.
    return bool({name, "__getattr__", "*"} & names) or _is_module(base, f"{path}/{name}")


def _is_module(base: Base, path: str) -> bool:
    return any(base.read(f"{path}{end}") is not None for end in (".py", "/__init__.py"))


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Name what a module binds at its top, in branches as well."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)
