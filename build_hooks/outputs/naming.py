"""What the wheel is called, and what it requires."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version


@dataclass(frozen=True)
class Identity:
    """What the wheel's metadata say, known before anything large is fetched."""

    version: str
    requirement: str


def identity(distribution: str, version: Version, revision: int, *, locked: bool) -> Identity:
    """Name the overlay of a base.

    Args:
        distribution: The distribution that carries the base.
        version: The version of the base.
        revision: The revision of the queue, the fourth component of the overlay's version.
        locked: Whether the build reproduces a lock; if not, the version says so.

    Returns:
        The version and the requirement of the wheel.
    """
    name = f"{version.base_version}.{revision}"
    if not locked:
        # After the mark comes what distinguishes the base from a release.
        rest = str(version)[len(version.base_version) :].strip(".+").replace("+", ".")
        name += ".".join(filter(None, ["+unlocked", rest]))
    return Identity(str(Version(name)), requirement(distribution, version))


def requirement(distribution: str, version: Version) -> str:
    """Return the requirement that only the base itself fulfils.

    Args:
        distribution: The distribution that carries the base.
        version: The version of the base.
    """
    return f"{distribution}=={version.public}"
