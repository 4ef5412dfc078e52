"""Holds the calls in a patch's diffs against the modules that have the patch's logic.

A diff puts an import and a few calls into vLLM; nothing else would notice that a name was misspelt,
or renamed on one side, before the patched module is imported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import tokenize
from typing import TYPE_CHECKING

from build_hooks.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from build_hooks.diffs.model import FileDiff
    from build_hooks.queues.model import Patch

_PACKAGE = "vllm_nemo"
# As many lines as a hook may add to one file. A diff that adds more carries logic.
HOOK = 10


def check(patch: Patch, home: str, package: Path) -> Iterator[Problem]:
    """Find what the diffs of a patch import or call and the run-time package has not.

    Args:
        patch: The patch.
        home: Its directory, as messages name it; ends with a slash.
        package: The sources of the run-time package.

    Yields:
        A problem for each name, and for logic in another module than the patch names.
    """
    if patch.module and _file_of(package, patch.module) is None:
        yield Problem(f"{home}patch.toml", "module", f"{patch.module} does not exist")
        return
    imported = False
    for variant in patch.variants:
        for file in variant.files:
            name = f"{home}{variant.release}.patch"
            for module, names in _uses(file):
                imported = True
                where = f"{file.path} uses {module}"
                if not f"{module}.".startswith(f"{patch.module}."):
                    expected = patch.module or "no module"
                    yield Problem(name, "", f"{where}, but patch.toml names {expected}")
                elif _file_of(package, module) is None:
                    yield Problem(name, "", f"{where}, which does not exist")
                else:
                    missing = [n for n in names if not _has(package, module, n)]
                    for unknown in missing:
                        yield Problem(name, "", f"{where}.{unknown}, which does not exist")
    if patch.module and not imported:
        yield Problem(f"{home}patch.toml", "module", f"no diff uses {patch.module}")


def large(patch: Patch, home: str) -> Iterator[Problem]:
    """Find diffs that carry logic without a reason, and a reason without such a diff.

    Args:
        patch: The patch.
        home: Its directory, as messages name it; ends with a slash.

    Yields:
        A problem for each diff of one file that adds more than ``HOOK`` lines.
    """
    found = [
        (variant.release, file.path, added)
        for variant in patch.variants
        for file in variant.files
        if (added := sum(1 for h in file.hunks for _ in _added(h.old, h.new))) > HOOK
    ]
    for release, path, added in () if patch.logic else found:
        message = f"adds {added} lines to {path}; a hook adds {HOOK} at most: move the logic to"
        message += " the patch's module, or say under 'logic' in patch.toml why it has to be here"
        yield Problem(f"{home}{release}.patch", "", message)
    if patch.logic and not found:
        message = f"is not needed: no diff adds more than {HOOK} lines to a file"
        yield Problem(f"{home}patch.toml", "logic", message)


def strays(patches: Sequence[Patch], package: Path) -> Iterator[Problem]:
    """Find modules beside the patches' logic that no patch names; ``shared`` is for all."""
    known = {patch.module.rpartition(".")[2] for patch in patches} | {"shared", "__init__"}
    for path in sorted((package / "patches").glob("*")):
        if path.stem not in known and (path.suffix == ".py" or (path / "__init__.py").exists()):
            name = path.relative_to(package.parent).as_posix()
            yield Problem(name, "", "is no patch's module, and is not in patches/shared")


def _uses(file: FileDiff) -> Iterator[tuple[str, list[str]]]:
    """Give each module of the package that a diff's added lines use, with the names they want."""
    added = [line for hunk in file.hunks for line in _added(hunk.old, hunk.new)]
    aliases: dict[str, str] = {}
    for statement in _imports(added):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.split(".")[0] == _PACKAGE:
                    aliases[alias.asname or alias.name] = alias.name
                    yield alias.name, []
        elif statement.module and statement.module.split(".")[0] == _PACKAGE:
            whole = [alias for alias in statement.names if _is_module_path(statement.module)]
            for alias in whole:
                aliases[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
                yield f"{statement.module}.{alias.name}", []
            if not whole:
                yield statement.module, [alias.name for alias in statement.names]
    for bound, module in aliases.items():
        names = sorted(set(_attributes(added, bound)))
        if names:
            yield module, names


def _is_module_path(module: str) -> bool:
    """Tell whether what is imported from there is a module: the logic lies two levels down."""
    return module in (_PACKAGE, f"{_PACKAGE}.patches", f"{_PACKAGE}.patches.shared")


def _added(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[str]:
    """Give the lines of a hunk that are only in its new text."""
    kept = list(old)
    for line in new:
        if line in kept:
            kept.remove(line)
        else:
            yield line.decode()


def _imports(lines: Sequence[str]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Parse each import statement that begins in one of the lines; it may go over several."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((f"from {_PACKAGE}", f"import {_PACKAGE}")):
            for end in range(number + 1, len(lines) + 1):
                try:
                    (statement,) = ast.parse("".join(lines[number:end]).strip()).body[:1]
                except SyntaxError:
                    continue
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    yield statement
                break


def _attributes(lines: Sequence[str], name: str) -> Iterator[str]:
    """Give the attributes that are asked of a name; the lines need not be whole statements."""
    dotted = name.split(".")
    for line in lines:
        words: list[str] = []
        tokens = tokenize.generate_tokens(io.StringIO(line.strip()).readline)
        with contextlib.suppress(tokenize.TokenError, SyntaxError):
            words.extend(token.string for token in tokens)
        size = 2 * len(dotted) - 1
        chain = [part for word in dotted for part in (word, ".")][:-1]
        for place in range(len(words) - size - 1):
            before = words[place - 1] if place else ""
            if (
                words[place : place + size] == chain
                and words[place + size] == "."
                and before != "."
                and "import" not in words
            ):
                yield words[place + size + 1]


def _file_of(package: Path, module: str) -> Path | None:
    """Return the source file of a module of the package, None if there is none."""
    path = package.parent.joinpath(*module.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _has(package: Path, module: str, name: str) -> bool:
    if _file_of(package, f"{module}.{name}") is not None:
        return True
    file = _file_of(package, module)
    return file is not None and name in _defined(file.read_bytes())


@functools.lru_cache(maxsize=64)
def _defined(source: bytes) -> frozenset[str]:
    """Return the names that a module binds at its top level when it runs."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
    return frozenset(names)
