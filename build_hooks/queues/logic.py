"""Looks up every name of the run-time package that a patch's diffs import or call.

A diff puts an import and a few calls into vLLM. Nothing else would notice that a name was misspelt,
or renamed on one side, before the patched module is imported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import symtable
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import decode_source
from typing import TYPE_CHECKING, NamedTuple

from build_hooks.errors import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from build_hooks.diffs.model import FileDiff
    from build_hooks.queues.model import Patch

# As many lines as a hook may add to one file. A diff that adds more carries logic.
HOOK = 10


Packages = Mapping[str, "Path"]


def check(patch: Patch, home: str, packages: Packages, *, own: bool) -> Iterator[Problem]:
    """Find what the diffs of a patch import or call and the packages of its queue have not.

    Args:
        patch: The patch.
        home: Its directory, as messages name it; ends with a slash.
        packages: The sources of each Python package that comes with the queue, by its name.
        own: Whether the logic has to be in the module that the patch names.

    Yields:
        A problem for each name, and for logic in another module than the patch names.
    """
    toml = f"{home}patch.toml"
    if patch.module:
        source = _source(packages, patch.module)
        if source is None:
            yield Problem(toml, "module", f"{patch.module} does not exist")
            return
        try:
            _names(source.read_bytes())
        except (SyntaxError, ValueError) as error:
            root = packages[patch.module.split(".")[0]].parent
            name = source.relative_to(root).as_posix()
            yield Problem(name, "", f"is not Python: {error}")
            return
    used = False
    for variant in patch.variants:
        for file in variant.files:
            uses, faults = _uses(file, packages)
            used = used or bool(uses)
            faults += [fault for use in uses if (fault := _fault(use, patch, packages, own=own))]
            for fault in dict.fromkeys(faults):
                yield Problem(f"{home}{variant.release}.patch", "", f"{file.path} {fault}")
    if own and patch.module and not used:
        yield Problem(toml, "module", f"no diff uses {patch.module}")


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
    """Find modules beside the patches' logic that no patch names.

    Args:
        patches: Every patch of the queue.
        package: The sources of the run-time package.

    Yields:
        A problem for each; ``patches/shared`` has what several patches use.
    """
    known = {patch.module.rpartition(".")[2] for patch in patches} | {"shared", "__init__"}
    for path in sorted((package / "patches").glob("*")):
        if path.stem not in known and (path.suffix == ".py" or any(path.rglob("*.py"))):
            name = path.relative_to(package.parent).as_posix()
            yield Problem(name, "", "is no patch's module, and is not in patches/shared")


class _Use(NamedTuple):
    """A module of the package that a diff uses, and the name that it takes from it, if any."""

    module: str
    name: str = ""


def _fault(use: _Use, patch: Patch, packages: Packages, *, own: bool) -> str:
    """Say what is wrong with a use; nothing if it is right."""
    if own and not f"{use.module}.".startswith(f"{patch.module}."):
        return f"uses {use.module}, but patch.toml names {patch.module or 'no module'}"
    source = _source(packages, use.module)
    if source is None:
        return f"uses {use.module}, which does not exist"
    whole = f"{use.module}.{use.name}"
    if use.name and not _source(packages, whole) and use.name not in _names(source.read_bytes()):
        return f"uses {whole}, which does not exist"
    return ""


def _uses(file: FileDiff, packages: Packages) -> tuple[list[_Use], list[str]]:
    """Find what the added lines of a diff use of the packages, and what of that cannot be told."""
    lines = [line for hunk in file.hunks for line in _added(hunk.old, hunk.new)]
    uses: list[_Use] = []
    faults: list[str] = []
    # What each module is called in this diff, and the words of each line that is no import.
    called: dict[str, str] = {}
    code: list[list[str]] = []
    number = 0
    while number < len(lines):
        words = _words(lines[number])
        if "import" not in words or not set(packages) & set(words):
            code.append(words)
            number += 1
            continue
        statements, after = _imports(lines, number)
        if not statements:
            line = lines[number].strip()
            faults.append(f"has an import that cannot be read: write it on a line alone: {line}")
        for statement in statements:
            for use, bound in _imported(statement, packages):
                uses.append(use)
                if not use.name:
                    called[bound] = use.module
        number = after
    for words in code:
        found = [
            _Use(module, name)
            for bound, module in called.items()
            for name in _attributes(words, bound)
        ]
        uses += found
        faults += [
            f"uses {package} without an import in the same diff"
            for package in ([] if found else packages)
            if any(_attributes(words, package))
        ]
    return uses, faults


def _added(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[str]:
    """Give the lines of a hunk that are only in its new text."""
    kept = list(old)
    for line in new:
        if line in kept:
            kept.remove(line)
        else:
            yield line.decode()


def _words(line: str) -> list[str]:
    """Give the names and marks of a line, which need not be a whole statement."""
    words = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(line.strip()).readline):
            words.append(token.string)  # noqa: PERF401
    return words


def _imports(lines: Sequence[str], start: int) -> tuple[list[ast.Import | ast.ImportFrom], int]:
    """Parse the imports that begin in a line, and go over as few lines as they can.

    Returns:
        The statements, none if these are no imports alone, and the first line after them.
    """
    for end in range(start + 1, len(lines) + 1):
        with contextlib.suppress(SyntaxError):
            body = ast.parse("".join(lines[start:end]).strip()).body
            statements = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]
            return (statements, end) if len(statements) == len(body) else ([], end)
    return [], start + 1


def _imported(
    statement: ast.Import | ast.ImportFrom, packages: Packages
) -> Iterator[tuple[_Use, str]]:
    """Give what a statement imports of the packages, and what the diff calls it."""
    parent = (statement.module or "") if isinstance(statement, ast.ImportFrom) else ""
    for alias in statement.names:
        whole = f"{parent}.{alias.name}" if parent else alias.name
        if whole.split(".")[0] not in packages:
            continue
        is_module = not parent or _source(packages, whole) is not None or _is_bare(packages, parent)
        use = _Use(whole) if is_module else _Use(parent, alias.name)
        yield use, alias.asname or alias.name


def _attributes(words: Sequence[str], name: str) -> Iterator[str]:
    """Give the attributes that a line asks of a name, which may be a dotted one."""
    chain = [word for part in name.split(".") for word in (part, ".")]
    for place in range(len(words) - len(chain)):
        before = words[place - 1] if place else ""
        if before != "." and list(words[place : place + len(chain)]) == chain:
            yield words[place + len(chain)]


def _is_bare(packages: Packages, module: str) -> bool:
    """Tell whether a package has modules and no names of its own, so that a module is meant."""
    source = _source(packages, module)
    # Our own has names, and none that a diff may use.
    return module == "vllm_nemo" or (
        source is not None and source.name == "__init__.py" and not _names(source.read_bytes())
    )


def _source(packages: Packages, module: str) -> Path | None:
    """Return the source file of a module of one of the packages, None if there is none."""
    name, *inside = module.split(".")
    path = packages[name].joinpath(*inside)
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@functools.lru_cache(maxsize=64)
def _names(source: bytes) -> frozenset[str]:
    """Return the names that a module binds at its top level.

    Raises:
        SyntaxError, ValueError: if it is not Python.
    """
    table = symtable.symtable(decode_source(source), "module", "exec")
    return frozenset(
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    )
