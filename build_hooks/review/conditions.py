"""Whether a patch can go: the conditions under ``[[remove-when]]``, held against a base."""

from __future__ import annotations

import ast
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from build_hooks.review import source

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Condition, Patch


def met(patch: Patch, base: Base) -> list[str]:
    """Find the conditions of a patch that a base meets.

    Args:
        patch: The patch.
        base: The base.

    Returns:
        What each says, in words; any one of them means that the patch can go.
    """
    return [str(condition) for condition in patch.remove_when if _is_met(condition, base)]


def _is_met(condition: Condition, base: Base) -> bool:
    if condition.requires:
        return _requires(Requirement(condition.requires), base)
    module, _, name = (condition.symbol or condition.call).partition(":")
    path = module.replace(".", "/")
    content = base.read(f"{path}.py") or base.read(f"{path}/__init__.py")
    tree = source.parse(content)
    return _defines(tree.body, name.split(".")) if condition.symbol else _calls(tree, name)


def _requires(wanted: Requirement, base: Base) -> bool:
    """Tell whether a base requires at least what a requirement says, by lower bounds."""
    text = base.metadata()
    lowest = _lower_bound(wanted)
    if text is None or lowest is None:
        return False
    for line in HeaderParser().parsestr(text).get_all("Requires-Dist") or []:
        try:
            found = Requirement(line)
        except InvalidRequirement:
            continue
        bound = _lower_bound(found)
        # One that is behind an extra does not hold for every installation.
        optional = found.marker is not None and "extra" in str(found.marker)
        if found.name.lower() == wanted.name.lower() and bound is not None and not optional:
            return bound >= lowest
    return False


def _lower_bound(requirement: Requirement) -> Version | None:
    bounds = [
        Version(s.version.removesuffix(".*"))
        for s in requirement.specifier
        if s.operator in (">=", ">", "==", "~=")
    ]
    return max(bounds, default=None)


def _defines(body: list[ast.stmt], names: list[str]) -> bool:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name == names[0]:
                return len(names) == 1 or _defines(node.body, names[1:])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and len(names) == 1:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == names[0] for t in targets):
                return True
    return False


def _calls(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and (ast.unparse(node.func) == name or ast.unparse(node.func).endswith(f".{name}"))
        for node in ast.walk(tree)
    )
