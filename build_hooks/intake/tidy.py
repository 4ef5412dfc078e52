"""White space that the strict format refuses: taken off where the code stays the same."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from build_hooks.diffs.model import split

if TYPE_CHECKING:
    from collections.abc import Collection

_INDENT = re.compile(r"[ \t]*\t[ \t]*")


def tidy(content: bytes, known: Collection[bytes]) -> tuple[bytes, list[int]]:
    """Take blanks off the ends of added lines, and make tabs that indent them blanks.

    Args:
        content: A module as a patch makes it.
        known: The lines that it had before; they stay as they are.

    Returns:
        The module, and the numbers of the lines that were changed. They are none, too, if the
        code would be another: white space in the middle of a text that is no docstring.
    """
    lines = split(content)
    changed = []
    for number, line in enumerate(lines, 1):
        if line not in known and (clean := _clean(line)) != line:
            lines[number - 1] = clean
            changed.append(number)
    tidied = b"".join(lines)
    if changed and not _same_code(content, tidied):
        return content, []
    return tidied, changed


def _clean(line: bytes) -> bytes:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return line
    end = "\n" if text.endswith("\n") else ""
    return (_stripped(text) + end).encode()


def _stripped(text: str) -> str:
    text = text.rstrip()
    match = _INDENT.match(text)
    # As Python reads them.
    return match[0].expandtabs(8) + text[match.end() :] if match else text


def _code(content: bytes) -> str:
    """Return what a module does, but for white space in texts that only describe it."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                node.value.value = "\n".join(map(_stripped, value.split("\n")))
    return ast.dump(tree)


def _same_code(one: bytes, other: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _code(one) == _code(other)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Whatever is wrong with it is found when it is compiled.
        return True
