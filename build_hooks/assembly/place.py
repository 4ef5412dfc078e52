"""Modules that find files by their own place, which in the overlay is another than in vLLM.

vLLM looks for tuned kernel configurations, templates and scripts beside the module that needs them.
A served module lies in the overlay, so that it would find none, and run slower or otherwise without
a word. So each such module has to be decided upon, in the ``[place]`` table of a patch.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

# What the build writes in place of ``__file__``; it holds for an import and for ``python -m``.
_STOCK_FILE = b"__spec__.loader.stock_file"
_FILE = "__file__"
_OWN = frozenset({_FILE, "__spec__", "__loader__", "__cached__"})
_INSPECT = frozenset({"getfile", "getsourcefile", "getabsfile"})


@dataclass(frozen=True)
class Use:
    """A place in a module's source that asks where the module lies.

    Attributes:
        line: The line, from 1.
        column: The column in bytes, from 0.
        asks: What it asks, as source text.
        plain: Whether it is the name ``__file__`` alone, so that a build can put another in its
            place.
    """

    line: int
    column: int
    asks: str
    plain: bool


def uses(content: bytes) -> list[Use]:
    """Find what asks where a module lies.

    Args:
        content: The source of the module, which compiles.

    Returns:
        The uses, in the order of the source. ``importlib.resources`` and ``pkgutil`` ask the
        loader, which finds vLLM's files, and are none.
    """
    found = []
    tree = _parse(content)
    # Its name is the same wherever it lies.
    harmless = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("name", "parent")
    }
    quoted = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        asks = _asks(node)
        if asks and isinstance(node, ast.expr) and id(node) not in harmless:
            # Before Python 3.12 the columns within an f-string are not those of the file.
            plain = asks == _FILE and id(node) not in quoted
            found.append(Use(node.lineno, node.col_offset, asks, plain))
    return sorted(found, key=lambda use: (use.line, use.column))


def redirect(content: bytes) -> bytes:
    """Let a module look beside vLLM's own file: put that in place of each plain ``__file__``.

    Args:
        content: The source of the module, which compiles.

    Returns:
        The source, with the same lines.
    """
    lines = content.splitlines(keepends=True)
    for use in reversed(uses(content)):
        if use.plain:
            line = lines[use.line - 1]
            end = use.column + len(_FILE)
            lines[use.line - 1] = line[: use.column] + _STOCK_FILE + line[end:]
    return b"".join(lines)


def looks_for(content: bytes, name: str) -> bool:
    """Tell whether a module looks for a file or a directory beside it, as far as its source tells.

    Args:
        content: The source of the module.
        name: The name that it would look for.

    Returns:
        Whether it asks where it lies, and has the name as a text. False if it does not compile.
    """
    try:
        said = any(
            isinstance(node, ast.Constant) and node.value == name
            for node in ast.walk(_parse(content))
        )
        return said and bool(uses(content))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _parse(content: bytes) -> ast.Module:
    with warnings.catch_warnings():
        # What the compiler thinks of upstream's own lines is no news here.
        warnings.simplefilter("ignore")
        return ast.parse(content)


def _asks(node: ast.AST) -> str:
    """Return what a node asks of a module's place; empty if it asks nothing."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in _OWN:
            return name
        case ast.Attribute(attr="__file__" | "__path__", value=value) if _of_vllm(value):
            return ast.unparse(node)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="inspect"), attr=name)) if (
            name in _INSPECT
        ):
            return f"inspect.{name}"
    return ""


def _of_vllm(node: ast.expr) -> bool:
    """Tell whether an expression is a module of vLLM, or one that is looked up by name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value) == "sys.modules"
    return isinstance(node, ast.Name) and node.id == "vllm"
