"""A base that is a directory with ``vllm/`` in it: an installed vLLM, a checkout, a plain copy."""

from __future__ import annotations

import ast
import json
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from build_hooks.bases.base import MAXIMUM_BYTES, OURS, identity_in
from build_hooks.errors import BaseError
from build_hooks.files import is_regular, read_regular
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
    # What is held against a lock has to be what is patched: each file is read once.
    _read: dict[str, bytes | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def origin(self) -> str:
        """The directory."""
        return str(self.root)

    def read(self, path: str) -> bytes | None:
        """Read one file below the directory, as ``Base.read`` says."""
        if path not in self._read:
            self._read[path] = _file(self.root / path)
        return self._read[path]

    def below(self, directory: str) -> list[str]:
        """List the files below a directory, as ``Base.below`` says."""
        top = self.root / directory
        try:
            found = [path for path in top.rglob("*") if path.is_file()]
        except OSError as error:
            raise BaseError(f"{top} cannot be read: {error.strerror}") from error
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def metadata(self) -> str | None:
        """Return the metadata of the distribution, or of the source tree; None without either."""
        return _text(self.dist_info / "METADATA" if self.dist_info else self.root / "PKG-INFO")

    def licence(self) -> bytes | None:
        """Return the licence of the distribution, or of the checkout; None if there is none."""
        places = [self.root / "LICENSE"]
        if self.dist_info:
            places = [self.dist_info / "licenses" / "LICENSE", self.dist_info / "LICENSE"]
        return next((found for place in places if (found := _file(place)) is not None), None)


def from_directory(path: Path) -> DirectoryBase:
    """Take a directory that contains ``vllm/``; local changes in it make the build unlocked.

    Args:
        path: The directory.

    Returns:
        The base.

    Raises:
        BaseError: if it holds no vLLM, or does not tell its version.
    """
    if not holds_vllm(path):
        raise BaseError(
            f"{path} contains no vllm/__init__.py: name the directory above the package"
        )
    owner = owner_in(path)
    if owner is not None:
        name, version, dist_info = owner
        return DirectoryBase(path, name, version, pristine=False, dist_info=dist_info)
    pkg_info = path / "PKG-INFO"
    metadata = _text(pkg_info)
    if metadata is not None:
        name, version = identity_in(metadata, str(pkg_info))
        return DirectoryBase(path, name, version, pristine=False, dist_info=None)
    return DirectoryBase(path, "vllm", _generated_version(path), pristine=False, dist_info=None)


def holds_vllm(directory: Path) -> bool:
    """Tell whether a directory contains ``vllm/``.

    Args:
        directory: The directory above the package.

    Raises:
        BaseError: if it may not be looked into.
    """
    file = directory / "vllm" / "__init__.py"
    try:
        return is_regular(file)
    except OSError as error:
        raise BaseError(f"{file} cannot be read: {error.strerror}") from error


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
            value = node.value.value
            version = spell(value) if isinstance(value, str) else None
            if version is None:
                raise BaseError(f"{file} assigns {reprlib.repr(value)}, which is no version")
            return version
    raise BaseError(f"{file} assigns no version")


def owner_in(path: Path) -> tuple[str, Version, Path] | None:
    """Find the one distribution that owns ``vllm/`` in a directory of installed packages.

    Args:
        path: The directory; it need not exist.

    Returns:
        Its name, its version and its ``.dist-info`` directory; None if there is none.

    Raises:
        BaseError: if there are two, or what they say of themselves cannot be read.
    """
    try:
        found = sorted(entry for entry in path.iterdir() if entry.suffix == ".dist-info")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BaseError(f"{path} cannot be read: {error.strerror}") from error
    owners = {}
    for dist_info in found:
        if _owns_vllm(dist_info):
            name, version = identity_in(_text(dist_info / "METADATA") or "", str(dist_info))
            if name != OURS:
                owners[name] = (name, version, dist_info)
    if len(owners) > 1:
        listed = " and ".join(f"{name} {version}" for name, version, _ in owners.values())
        raise BaseError(f"{listed} both own vllm/ in one environment; uninstall both, install one")
    return next(iter(owners.values()), None)


def _owns_vllm(dist_info: Path) -> bool:
    record = _text(dist_info / "RECORD") or ""
    if record.startswith("vllm/__init__.py,") or "\nvllm/__init__.py," in record:
        return True
    root = editable_root(dist_info)
    try:
        return root is not None and holds_vllm(root)
    except BaseError:
        # They may be those of any distribution.
        return False


def editable_root(dist_info: Path) -> Path | None:
    """Return the source directory of an editable install (PEP 610).

    Args:
        dist_info: The metadata directory of the installed distribution.

    Returns:
        The directory above its packages; None for any other kind of install.
    """
    try:
        data = json.loads(read_regular(dist_info / "direct_url.json", MAXIMUM_BYTES))
        if not data["dir_info"]["editable"]:
            return None
        return Path(url2pathname(urlsplit(data["url"]).path))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # No such file, or one that speaks of an archive, a repository, or nothing at all.
        return None


def _text(path: Path) -> str | None:
    data = _file(path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise BaseError(f"{path} is damaged ({error})") from error


def _file(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAXIMUM_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BaseError(f"{path} cannot be read: {error.strerror}") from error
