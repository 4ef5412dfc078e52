"""The spelling of a vLLM release: brought into one form at the door, before anything uses it.

``0.29``, ``v0.29.0`` and ``0.29.0`` name one release. As versions they are equal, as text they are
not, and text goes into file names and into requests to the package index.
"""

from __future__ import annotations

from packaging.version import Version

_COMPONENTS = 3


def spell(text: str) -> Version | None:
    """Read a version in any spelling; give a release the three components that vLLM writes.

    Args:
        text: What a user, a file or a distribution calls the version.

    Returns:
        The version whose text is vLLM's own; None if ``text`` is no version.
    """
    try:
        version = Version(text.strip())
    except ValueError:
        # InvalidVersion, or a number of too many digits.
        return None
    release = list(version.release)
    while len(release) > _COMPONENTS and release[-1] == 0:
        release.pop()
    release += [0] * (_COMPONENTS - len(release))
    epoch = f"{version.epoch}!" if version.epoch else ""
    rest = str(version)[len(version.base_version) :]
    return Version(epoch + ".".join(map(str, release)) + rest)


def final(version: Version) -> Version:
    """Return the release that a development, local or pre-release version belongs to."""
    return Version(version.base_version)


def strict(text: str) -> Version | None:
    """Read a release as a file of a queue has to write it; None for any other spelling."""
    version = spell(text)
    return version if version is not None and str(final(version)) == text else None
