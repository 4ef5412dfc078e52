"""What the wheel is called, and what it requires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from build_hooks.queues.stack import Stack


@dataclass(frozen=True)
class Identity:
    """What the wheel's metadata say, known before anything large is fetched.

    Attributes:
        version: The release, the revision of our queue, and what sets the wheel apart from ours.
        requirement: The base.
        requires: What the patches import, as requirements.
    """

    version: str
    requirement: str
    requires: tuple[str, ...] = ()


def identity(base: Base, release: Version, queues: Stack, *, locked: bool) -> Identity:
    """Name the overlay of a base.

    Args:
        base: The base.
        release: The release that it is, or derives from.
        queues: The queues, and the patches that are taken.
        locked: Whether the base is a locked release; if not, the version says so.

    Returns:
        The version and the requirement of the wheel.
    """
    version = base.version
    words = []
    if not locked:
        words = ["unlocked", *_difference(version, release)]
    elif Version(version.public) != release:
        # The files of a release under another version: not the wheel that requires the release.
        words = ["base", *_difference(version, release)]
    return _named(base.distribution, version, release, words, queues)


def identity_of_release(release: Version, queues: Stack, *, locked: bool) -> Identity:
    """Name the overlay of a release that has not been opened.

    Args:
        release: The release.
        queues: The queues, and the patches that are taken.
        locked: Whether the release is locked.
    """
    return _named("vllm", release, release, [] if locked else ["unlocked"], queues)


def _difference(version: Version, release: Version) -> list[str]:
    """Return what a version says beyond the release, as words of a local part."""
    whole, start = str(version), release.base_version
    rest = whole.removeprefix(start)
    return [word for word in rest.replace("+", ".").replace("!", ".").split(".") if word]


def _named(
    distribution: str, version: Version, release: Version, words: list[str], queues: Stack
) -> Identity:
    local = ".".join([*words, *queues.mark])
    name = f"{release.base_version}.{queues.own.revision}" + (f"+{local}" if local else "")
    return Identity(str(Version(name)), requirement(distribution, version), tuple(queues.requires))


def requirement(distribution: str, version: Version) -> str:
    """Return the requirement that only the base itself fulfils.

    Args:
        distribution: The distribution that carries the base.
        version: The version of the base.
    """
    return f"{distribution}=={version.public}"
