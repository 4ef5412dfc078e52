"""What a frozen program needs of vLLM and the overlay, so that it serves as an installation does.

A frozen program has the same files at the same paths: vLLM's sources, which are compared with the
manifest, and the overlay as the wheel brings it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.finder import check_base
from vllm_nemo._overlay.installed import Installed
from vllm_nemo._overlay.manifest import PACKAGE, load_manifest
from vllm_nemo._overlay.stock import directory_of, stock_file, stock_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_nemo._overlay.manifest import Manifest


class Collected(NamedTuple):
    """What to put into a frozen program.

    Attributes:
        files: Each file to copy, and the directory in the program to copy it to.
        modules: The modules to include, with what they import.
        sources: The packages that have to be source files on disk there.
        distributions: The distributions whose metadata the program needs, for entry points.
    """

    files: list[tuple[str, str]]
    modules: list[str]
    sources: tuple[str, ...]
    distributions: list[str]


def collect() -> Collected:
    """Find out what to put into a program that imports vLLM.

    Returns:
        What to collect.

    Raises:
        OverlayError: if the overlay is not whole, or was not built for the vLLM that is installed:
            the program would refuse to import vLLM.
    """
    manifest = load_manifest()
    stock = stock_spec("vllm")
    if stock is None:
        raise OverlayError("vllm-nemo cannot be frozen without a vLLM: none is installed here.")
    directory = directory_of(stock)
    check_base(manifest, directory)
    modules = {module.name for module in manifest.modules.values() if module.stock is not None}
    modules |= set(_own_modules())
    for module in manifest.modules.values():
        package = module.name if module.package else module.name.rpartition(".")[0]
        text = manifest.served_file(module).read_bytes()
        modules |= set(_imported(ast.parse(text), package, directory.parent))
    files = [(str(file), str(to)) for file, to in _files(manifest, directory)]
    owners = [name for name, _ in Installed(directory).owners]
    added = {name for name, module in manifest.modules.items() if module.stock is None}
    return Collected(
        files, sorted(modules - added), ("vllm", "vllm_nemo"), ["vllm-nemo", *sorted(owners)]
    )


def _files(manifest: Manifest, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Give the overlay's files and the stock data that it compares, with where they go."""
    for file in sorted(PACKAGE.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, file.relative_to(PACKAGE.parent).parent
    start = PACKAGE.with_suffix(".pth")
    if start.exists():
        yield start, Path()
    for data in manifest.data.values():
        if data.stock is not None:
            yield stock_file(directory, data), Path(data.path).parent


def _own_modules() -> Iterator[str]:
    """Give the names of the run-time package's modules."""
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        # Not the served files, which are no modules of ours, and not the hooks, which are scripts.
        if all(part.isidentifier() for part in parts) and not {"_modules", "hooks"} & {*parts}:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, package: str, root: Path) -> Iterator[str]:
    """Give the modules that a served file imports: nobody else sees them in it.

    Args:
        tree: The file.
        package: The package that it is in.
        root: The directory that holds ``vllm``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_there(alias.name))
        elif isinstance(node, ast.ImportFrom):
            # As many last names go as there are dots but one.
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            parts = [*above, *([node.module] if node.module else [])]
            base = ".".join(parts)
            if _is_there(base):
                yield base
            for alias in node.names:
                path = root.joinpath(*base.split("."), alias.name)
                if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
                    yield f"{base}.{alias.name}"


def _is_there(name: str) -> bool:
    """Tell whether the top package of a module is installed; many imports are of optional ones."""
    top = name.partition(".")[0]
    return top == "vllm" or top in sys.modules or importlib.util.find_spec(top) is not None
