"""Which base a setting names: a release, the installed vLLM, or a path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from packaging.version import Version

from build_hooks.bases import cache
from build_hooks.bases.directory import from_directory
from build_hooks.bases.installed import find_installed, is_isolated
from build_hooks.bases.wheel import from_wheel
from build_hooks.errors import BaseError
from build_hooks.releases import spell

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from build_hooks.queues.stack import Stack

BASE_VARIABLE: Final = "NRL_VLLM_BASE"
INSTALLED: Final = "installed"
# A release, a path, or ``INSTALLED``.
Place: TypeAlias = Version | Path | str


def named(setting: str) -> Place:
    """Tell what a setting names.

    What reads as a version is a release, whatever lies in the current directory: ``./0.29.0`` names
    a directory of that name.

    Args:
        setting: "installed", a release in any spelling, or the path of a wheel or a directory.

    Returns:
        ``INSTALLED``, the release, or the path.

    Raises:
        BaseError: if it is none of them.
    """
    if not setting:
        raise BaseError("the name of the base is empty")
    if setting == INSTALLED:
        return INSTALLED
    release = spell(setting)
    if release is not None:
        if release.local is not None:
            raise BaseError(
                f"{setting!r} is no release of the package index; to name a file, write ./{setting}"
            )
        return release
    try:
        path = Path(setting).expanduser().resolve()
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BaseError(
            f"{setting!r} is none of: {INSTALLED!r}, a release such as 0.29.0, a wheel file, a "
            f"directory that contains vllm/ (looked for as {str(path)!r})"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        # Too long a name, or a directory that may not be entered; an unknown user's home directory;
        # a NUL.
        reason = getattr(error, "strerror", None) or error
        raise BaseError(f"{setting!r} cannot be looked at: {reason}") from error
    return path


def open_place(place: Place, queues: Stack) -> Base:
    """Open a base; a release comes from the cache or from the package index.

    Args:
        place: What ``named`` returned.
        queues: The queues, whose locks of a release say which files a build of it reads.

    Returns:
        The base.

    Raises:
        BaseError: if there is no such base, or it is not what it says it is.
    """
    if isinstance(place, Version):
        return cache.open_release(place, queues)
    if isinstance(place, Path):
        return from_directory(place) if place.is_dir() else from_wheel(place)
    found = find_installed()
    if found is None:
        raise not_installed(queues)
    return found


def not_installed(queues: Stack) -> BaseError:
    """Return the error for a build that is to take the installed vLLM, and finds none.

    Args:
        queues: The queues, whose newest release is the example.

    Returns:
        The error, to be raised.
    """
    if not is_isolated():
        return BaseError("no vLLM is installed here: name a release, a wheel or a directory")
    newest = queues.releases[-1]
    return BaseError(
        "this build runs in an environment of its own and cannot see which vLLM the wheel is "
        f"for. Name it: {BASE_VARIABLE}={newest}, or in a uv project:\n"
        "  [tool.uv.extra-build-variables]\n"
        f'  vllm-nemo = {{ {BASE_VARIABLE} = "{newest}" }}'
    )
