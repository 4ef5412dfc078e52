"""Python sources as trees: parsed once, without a word of what the compiler thinks of them."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function of a module.

    Attributes:
        first: Its first line, that of a decorator if it has one.
        last: Its last line.
        content: What it does, without docstrings, comments and the layout of its lines.
    """

    first: int
    last: int
    content: str


def parse(content: bytes | None) -> ast.Module:
    """Parse a module.

    Args:
        content: Its source; None for one that is not there.

    Returns:
        The tree; an empty one for a module that is not there, or does not compile.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def functions(content: bytes | None) -> dict[str, Function]:
    """Find the functions of a module, those within others as well.

    Args:
        content: Its source; None for one that is not there.

    Returns:
        The functions, by their names with those of their classes.
    """
    found: dict[str, Function] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(child, prefix)
                continue
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                last = child.end_lineno or child.lineno
                found[name] = Function(first, last, _content(child))
            visit(child, f"{name}.")

    visit(parse(content), "")
    return found


def _content(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Write a function in one way, without its docstrings."""
    text = ast.unparse(node)
    copy = ast.parse(text)
    for inner in ast.walk(copy):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            ast.get_docstring(inner, clean=False) is not None
        ):
            inner.body = inner.body[1:] or [ast.Pass()]
    return ast.dump(copy)
