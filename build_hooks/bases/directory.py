"""A base that is a directory with ``vllm/`` in it: an installed vLLM, a checkout, a plain copy."""

from __future__ import annotations

import ast
import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from build_hooks.bases.base import MAXIMUM_BYTES, OURS, identity_in
from build_hooks.errors import BaseError
from build_hooks.files import read_regular
from build_hooks.releases import spell

if TYPE_CHECKING:
    from packaging.version import Version


@dataclass(frozen=True)
class DirectoryBase:
    """A directory that contains ``vllm/``: an installed vLLM, a checkout, an unpacked wheel."""

    root: Path
    distribution: str
    version: Version
    pristine: bool
    dist_info: Path | None

    @property
    def origin(self) -> str:
        """The directory."""
        return str(self.root)

    def read(self, path: str) -> bytes | None:
        """Read one file below the directory."""
        return _file(self.root / path)

    def licence(self) -> bytes | None:
        """Read the licence of the distribution, or of the checkout."""
        places = [self.root / "LICENSE"]
        if self.dist_info:
            places = [self.dist_info / "licenses" / "LICENSE", self.dist_info / "LICENSE"]
        return next((found for place in places if (found := _file(place)) is not None), None)


def from_directory(path: Path) -> DirectoryBase:
    """Take a directory that contains ``vllm/``; local changes in it make the build unlocked.

    Raises:
        BaseError: if it holds no vLLM, or does not tell its version.
    """
    if not (path / "vllm" / "__init__.py").is_file():
        raise BaseError(
            f"{path} contains no vllm/__init__.py: name the directory above the package"
        )
    owner = owner_in(path)
    if owner is not None:
        name, version, dist_info = owner
        return DirectoryBase(path, name, version, pristine=False, dist_info=dist_info)
    pkg_info = path / "PKG-INFO"
    if pkg_info.is_file():
        name, version = identity_in(_text(pkg_info), str(pkg_info))
        return DirectoryBase(path, name, version, pristine=False, dist_info=None)
    return DirectoryBase(path, "vllm", _generated_version(path), pristine=False, dist_info=None)


def _text(path: Path) -> str:
    try:
        return (_file(path) or b"").decode()
    except UnicodeDecodeError as error:
        raise BaseError(f"{path} is damaged ({error})") from error


def _generated_version(path: Path) -> Version:
    """Read ``vllm/_version.py``, which vLLM's build writes, without running it."""
    file = path / "vllm" / "_version.py"
    try:
        tree = ast.parse(read_regular(file, MAXIMUM_BYTES).decode())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = (
            f"{path} does not tell its version: no metadata beside vllm/ and no readable "
            f"vllm/_version.py ({error}). Install it, or build its wheel, and name that."
        )
        raise BaseError(message) from error
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and any(
                isinstance(t, ast.Name) and t.id in ("__version__", "version") for t in node.targets
            )
            and isinstance(node.value, ast.Constant)
        ):
            version = spell(str(node.value.value))
            if version is None:
                raise BaseError(f"{file} assigns {node.value.value!r}, which is no version")
            return version
    raise BaseError(f"{file} assigns no version")


def owner_in(path: Path) -> tuple[str, Version, Path] | None:
    """Find the one distribution that owns ``vllm/`` in a directory of installed packages."""
    owners = {}
    for distribution in importlib.metadata.distributions(path=[str(path)]):
        location = Path(str(getattr(distribution, "_path", "")))
        if location.suffix != ".dist-info":
            continue
        if _owns_vllm(distribution):
            name, version = identity_in(_metadata(distribution, "METADATA"), str(location))
            if name != OURS:
                owners[name] = (name, version, location)
    if len(owners) > 1:
        listed = " and ".join(f"{name} {version}" for name, version, _ in owners.values())
        raise BaseError(f"{listed} both own vllm/ in one environment; uninstall both, install one")
    return next(iter(owners.values()), None)


def _metadata(distribution: importlib.metadata.Distribution, name: str) -> str:
    try:
        return distribution.read_text(name) or ""
    except (OSError, UnicodeDecodeError) as error:
        where = getattr(distribution, "_path", "an installed distribution")
        raise BaseError(f"{name} of {where} is damaged ({error})") from error


def _owns_vllm(distribution: importlib.metadata.Distribution) -> bool:
    record = _metadata(distribution, "RECORD")
    if record.startswith("vllm/__init__.py,") or "\nvllm/__init__.py," in record:
        return True
    root = editable_root(Path(str(getattr(distribution, "_path", ""))))
    return root is not None and (root / "vllm" / "__init__.py").is_file()


def editable_root(dist_info: Path) -> Path | None:
    """Return the source directory of an editable install (PEP 610), None for any other."""
    try:
        data = json.loads((dist_info / "direct_url.json").read_text(encoding="utf-8"))
        if not data["dir_info"]["editable"]:
            return None
        return Path(url2pathname(urlsplit(data["url"]).path))
    except (OSError, ValueError, KeyError, TypeError):
        # No such file, or one that speaks of an archive, a repository, or nothing at all.
        return None


def _file(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAXIMUM_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BaseError(f"{path} cannot be read: {error.strerror}") from error
