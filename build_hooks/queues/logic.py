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
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from build_hooks.diffs.model import FileDiff
    from build_hooks.queues.model import Patch


def check(patch: Patch, home: str, packages: Mapping[str, Path], *, own: bool) -> Iterator[Problem]:
    """Find what the diffs of a patch import or call and the packages of its queue have not.

    Args:
        patch: The patch.
        home: Its directory, as messages name it; ends with a slash.
        packages: The sources of each Python package that comes with the queue, by its name.
        own: Whether the logic has to be in the module that the patch names.

    Yields:
        A problem for each name, and for logic in another module than the patch names.
    """
    if patch.module and _file_of(packages, patch.module) is None:
        yield Problem(f"{home}patch.toml", "module", f"{patch.module} does not exist")
        return
    imported = False
    for variant in patch.variants:
        for file in variant.files:
            name = f"{home}{variant.release}.patch"
            for module, names in _uses(file, packages):
                imported = True
                where = f"{file.path} uses {module}"
                if own and not f"{module}.".startswith(f"{patch.module}."):
                    expected = patch.module or "no module"
                    yield Problem(name, "", f"{where}, but patch.toml names {expected}")
                elif _file_of(packages, module) is None:
                    yield Problem(name, "", f"{where}, which does not exist")
                else:
                    missing = [n for n in names if not _has(packages, module, n)]
                    for unknown in missing:
                        yield Problem(name, "", f"{where}.{unknown}, which does not exist")
    if own and patch.module and not imported:
        yield Problem(f"{home}patch.toml", "module", f"no diff uses {patch.module}")


def strays(patches: Sequence[Patch], package: Path) -> Iterator[Problem]:
    """Find modules beside the patches' logic that no patch names; ``shared`` is for all."""
    known = {patch.module.rpartition(".")[2] for patch in patches} | {"shared", "__init__"}
    for path in sorted((package / "patches").glob("*")):
        if path.stem not in known and (path.suffix == ".py" or (path / "__init__.py").exists()):
            name = path.relative_to(package.parent).as_posix()
            yield Problem(name, "", "is no patch's module, and is not in patches/shared")


def _uses(file: FileDiff, packages: Mapping[str, Path]) -> Iterator[tuple[str, list[str]]]:
    """Give each module of the package that a diff's added lines use, with the names they want."""
    added = [line for hunk in file.hunks for line in _added(hunk.old, hunk.new)]
    aliases: dict[str, str] = {}
    for statement in _imports(added, packages):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.split(".")[0] in packages:
                    aliases[alias.asname or alias.name] = alias.name
                    yield alias.name, []
        elif statement.module and statement.module.split(".")[0] in packages:
            for alias in statement.names:
                module = f"{statement.module}.{alias.name}"
                if _file_of(packages, module) is None and not _is_bare(packages, statement.module):
                    yield statement.module, [alias.name]
                else:
                    aliases[alias.asname or alias.name] = module
                    yield module, []
    for bound, module in aliases.items():
        names = sorted(set(_attributes(added, bound)))
        if names:
            yield module, names


def _is_bare(packages: Mapping[str, Path], module: str) -> bool:
    """Tell whether a package has modules and no names of its own, so that a module was meant."""
    file = _file_of(packages, module)
    return file is not None and file.name == "__init__.py" and not _defined(file.read_bytes())


def _added(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[str]:
    """Give the lines of a hunk that are only in its new text."""
    kept = list(old)
    for line in new:
        if line in kept:
            kept.remove(line)
        else:
            yield line.decode()


def _imports(
    lines: Sequence[str], packages: Mapping[str, Path]
) -> Iterator[ast.Import | ast.ImportFrom]:
    """Parse each import statement that begins in one of the lines; it may go over several."""
    begins = tuple(f"{word} {name}" for name in packages for word in ("from", "import"))
    for number, line in enumerate(lines):
        if line.lstrip().startswith(begins):
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


def _file_of(packages: Mapping[str, Path], module: str) -> Path | None:
    """Return the source file of a module of one of the packages, None if there is none."""
    name, *inside = module.split(".")
    path = packages[name].joinpath(*inside)
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _has(packages: Mapping[str, Path], module: str, name: str) -> bool:
    if _file_of(packages, f"{module}.{name}") is not None:
        return True
    file = _file_of(packages, module)
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
