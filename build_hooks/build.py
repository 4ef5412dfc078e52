"""The life of a build: from a setting to everything that goes into the wheel."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.choice import (
    BASE_VARIABLE,
    INSTALLED,
    Place,
    named,
    not_installed,
    open_place,
)
from build_hooks.bases.installed import find_installed, is_isolated
from build_hooks.errors import BaseError, BuildError
from build_hooks.outputs.content import Content
from build_hooks.outputs.naming import Identity, identity, identity_of_release, requirement
from build_hooks.outputs.record import differing_files, verify
from build_hooks.queues import lock
from build_hooks.queues.stack import stack
from build_hooks.releases import final, spell

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay
    from build_hooks.bases.base import Base
    from build_hooks.project import Project
    from build_hooks.queues.lock import Lock
    from build_hooks.queues.model import Queue
    from build_hooks.queues.stack import Stack

PRESENT_VARIABLE = "NRL_VLLM_PRESENT"
PROVIDED_VARIABLE = "NRL_VLLM_PROVIDED"
QUEUE_VARIABLE = "NRL_VLLM_QUEUE"
PATCHES_VARIABLE = "NRL_VLLM_PATCHES"
RELEASE_VARIABLE = "NRL_VLLM_RELEASE"
VARIABLES = (
    BASE_VARIABLE,
    PRESENT_VARIABLE,
    PROVIDED_VARIABLE,
    QUEUE_VARIABLE,
    PATCHES_VARIABLE,
    RELEASE_VARIABLE,
)


@dataclass(frozen=True)
class Settings:
    """The build-time variables.

    Attributes:
        base: Which base is meant; empty for what is there.
        present: Ids of patches that the base carries already.
        provided: Ids of patches whose effect the base has in a form of its own.
        queues: Directories of queues on top of ours.
        patches: Which patches are taken of all queues, or left out; empty for all.
        release: The release that an unknown base derives from; empty for its own version.
    """

    base: str = ""
    present: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    patches: str = ""
    release: str = ""

    @classmethod
    def from_environment(cls) -> Settings:
        """Read the variables ``NRL_VLLM_...`` of a build."""

        def read(variable: str) -> str:
            return os.environ.get(variable, "").strip()

        def words(variable: str, separator: str = ",") -> tuple[str, ...]:
            given = read(variable).split(separator)
            return tuple(word.strip() for word in given if word.strip())

        return cls(
            base=read(BASE_VARIABLE),
            present=words(PRESENT_VARIABLE),
            provided=words(PROVIDED_VARIABLE),
            queues=words(QUEUE_VARIABLE, os.pathsep),
            patches=read(PATCHES_VARIABLE),
            release=read(RELEASE_VARIABLE),
        )


@functools.lru_cache(maxsize=1)
def make(project: Project, settings: Settings) -> Content:
    """Open the base, compare it with its lock, apply the queues, verify what came out.

    Args:
        project: The source tree with our own queue.
        settings: Which base is meant, and which queues and patches.

    Returns:
        What the wheel is made of. ``outputs.wheel.write`` writes it.

    Raises:
        BuildError: one of its kinds, for whatever keeps the wheel from being right.
    """
    queues = open_stack(project, settings)
    base = open_place(place(project, queues, settings), queues)
    known = not (settings.present or settings.provided)
    locked = hold(base, queues.own) if known else None
    release = _release(base, locked, queues, settings)
    overlay = assemble(queues, base, release, present=settings.present, provided=settings.provided)
    if not overlay.files:
        raise BuildError(
            f"vLLM {base.version} ({base.origin}) needs no patch of the queue: nothing to build"
        )
    verified = [queue for queue in queues.queues if _verify(queue, overlay, locked)]
    name = identity(base, release, queues, locked=locked is not None)
    _refuse_other_sdist(project, name)
    # A bare directory ships no licence; vLLM's is the Apache licence, as ours is.
    licence = base.licence() or project.licence.read_bytes()
    return Content(project, name, overlay, tuple(verified), licence)


def open_stack(project: Project, settings: Settings) -> Stack:
    """Read the queues that the settings name, ours first.

    Args:
        project: The source tree with our own queue.
        settings: Which queues and patches are meant.

    Raises:
        BuildError: if one is missing, or not as it must be.
    """
    directories = []
    for text in settings.queues:
        directory = Path(text).expanduser().resolve()
        if not (directory / "series.toml").is_file():
            raise BuildError(
                f"{QUEUE_VARIABLE}: {directory} has no series.toml. Give an absolute path: front "
                "ends build in directories of their own"
            )
        directories.append(directory)
    return stack(project.queue, directories, settings.patches)


def identify(project: Project, settings: Settings) -> Identity:
    """Name the wheel. A release is not fetched for that; any other base is built in memory.

    Args:
        project: The source tree with our own queue.
        settings: Which base is meant, and which queues and patches.

    Returns:
        The version and the requirement of the wheel.

    Raises:
        BuildError: as ``make``, for what is known before anything is fetched.
    """
    queues = open_stack(project, settings)
    release = place(project, queues, settings)
    if not isinstance(release, Version) or settings.present or settings.provided:
        return make(project, settings).identity
    locked = lock.load(queues.own.directory, release) is not None
    name = identity_of_release(release, queues, locked=locked)
    _refuse_other_sdist(project, name)
    return name


def hold(base: Base, queue: Queue) -> Lock | None:
    """Compare a base with the locks, before any patch is applied.

    A base is known by its content: one whose files are those of a locked release is that release,
    whatever its version says, unless that is another release.

    Args:
        base: The base.
        queue: The queue that holds the locks.

    Returns:
        The lock of the release that the base is; None for a base that is none of them.

    Raises:
        BaseError: if the base claims to be a release as published, and has other files.
    """
    directory = queue.directory
    claimed = lock.load(directory, Version(base.version.public))
    differing = [] if claimed is None else differing_files(claimed, base)
    if claimed is not None and not differing:
        return claimed
    if claimed is not None and base.pristine:
        listed = "\n".join(f"  {name}" for name in differing)
        raise BaseError(
            f"{base.origin} calls itself vLLM {base.version}, but differs from that release in "
            f"files this build reads:\n{listed}\n"
            "Something rewrote them (a run-time patcher?). Reinstall vLLM, or fetch its wheel "
            "again; to build an unlocked overlay from these files, name their directory in "
            f"{BASE_VARIABLE}."
        )
    if base.version == final(base.version):
        # A release of its own, which no lock covers.
        return None
    # Newest first: what two releases share is as good in either.
    for release in reversed(queue.releases):
        known = lock.load(directory, release)
        if known is not None and known is not claimed and not differing_files(known, base):
            return known
    return None


def _release(base: Base, locked: Lock | None, queues: Stack, settings: Settings) -> Version:
    """Tell which release's variants a base takes."""
    stated = spell(settings.release) if settings.release else None
    if settings.release and stated is None:
        raise BuildError(f"{RELEASE_VARIABLE}: {settings.release!r} is no release such as 0.29.0")
    if locked is not None:
        known = Version(locked.release)
        if stated is not None and stated != known:
            raise BuildError(
                f"{RELEASE_VARIABLE} says {stated}, but the files of {base.origin} are those of "
                f"vLLM {known}; leave it out"
            )
        return known
    if stated is not None:
        return stated
    refuse_older(base.version, queues, base.origin)
    return base.version


def _verify(queue: Queue, overlay: Overlay, locked: Lock | None) -> bool:
    """Compare a queue's part of a build with its lock; tell whether it has one for this base."""
    if locked is None:
        return False
    own = queue is overlay.stack.own
    known = locked if own else lock.load(queue.directory, Version(locked.release))
    if known is None:
        return False
    verify(known, overlay, queue)
    return True


def place(project: Project, queues: Stack, settings: Settings) -> Place:
    """Tell which base the settings name; without a name, which one is there to build for.

    Args:
        project: The source tree; an sdist is made for one release.
        queues: The queues.
        settings: The settings.

    Returns:
        What ``bases.choice.open_place`` opens.

    Raises:
        BaseError: if the settings name nothing, or a release that is too old.
    """
    found = _named(settings.base) if settings.base else _unnamed(project, queues)
    if isinstance(found, Version):
        refuse_older(found, queues)
    return found


def refuse_older(version: Version, queues: Stack, origin: str = "") -> None:
    """Refuse a vLLM that is older than every supported release.

    Args:
        version: Its version.
        queue: The queue.
        origin: For the message, where the version was read.

    Raises:
        BaseError: if it is older.
    """
    if final(version) < queues.releases[0]:
        where = f" ({origin})" if origin else ""
        message = f"vLLM {version}{where} is too old; the oldest supported is {queues.releases[0]}"
        if version != final(version):
            message += f". If it derives from a newer release, say which in {RELEASE_VARIABLE}"
        raise BaseError(message)


def _named(setting: str) -> Place:
    try:
        return named(setting)
    except BaseError as error:
        raise BaseError(f"{BASE_VARIABLE}: {error}") from error


def _unnamed(project: Project, queues: Stack) -> Place:
    installed = find_installed()
    announced = _announced(project)
    if announced is not None:
        name, release = announced
        if installed is None or name.requirement != requirement(
            installed.distribution, installed.version
        ):
            return release
        return INSTALLED
    if installed is not None:
        return INSTALLED
    if is_isolated():
        raise not_installed(queues)
    locked = [r for r in queues.releases if lock.path(queues.own.directory, r).exists()]
    return (locked or list(queues.releases))[-1]


def _announced(project: Project) -> tuple[Identity, Version] | None:
    """Return what the metadata of an sdist settle, and the release; None outside of one."""
    file = project.sdist_metadata
    if not file.exists():
        return None
    headers = HeaderParser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
    version = headers["Version"] or ""
    # Beside the base it requires what patches import.
    found = [
        (text, release)
        for text in headers.get_all("Requires-Dist") or []
        if (release := spell(text.partition("==")[2])) is not None
        and version.startswith(f"{release.base_version}.")
    ]
    if len(found) != 1:
        raise BuildError(f"{file} does not require one vLLM release; unpack the sdist again")
    ((text, release),) = found
    return Identity(version, text), release


def _refuse_other_sdist(project: Project, name: Identity) -> None:
    """Refuse a base whose wheel would not be the one that the sdist's metadata announce."""
    announced = _announced(project)
    if announced is None:
        return
    sdist, _ = announced
    if (sdist.version, sdist.requirement) != (name.version, name.requirement):
        raise BaseError(
            f"This sdist is vllm-nemo {sdist.version} for {sdist.requirement}, but this base would "
            f"make it {name.version} for {name.requirement}. Name the base that the sdist was made "
            f"for in {BASE_VARIABLE}, or build from a checkout."
        )
