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
from build_hooks.bases.choice import INSTALLED, named, open_place
from build_hooks.bases.installed import find_installed, is_isolated
from build_hooks.errors import BaseError, BuildError
from build_hooks.outputs.lock import differing_files, verify
from build_hooks.outputs.naming import Identity, identity, identity_of_release, requirement
from build_hooks.outputs.wheel import Content
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

BASE_VARIABLE = "NRL_VLLM_BASE"
PRESENT_VARIABLE = "NRL_VLLM_PRESENT"
PROVIDED_VARIABLE = "NRL_VLLM_PROVIDED"
QUEUE_VARIABLE = "NRL_VLLM_QUEUE"
PATCHES_VARIABLE = "NRL_VLLM_PATCHES"
RELEASE_VARIABLE = "NRL_VLLM_RELEASE"


@dataclass(frozen=True)
class Settings:
    """The build-time variables, as they were given.

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
    """Open the base, hold it against the lock, apply the queues, verify what came out.

    Args:
        project: The source tree with our own queue.
        settings: Which base is meant, and which queues and patches.

    Returns:
        What the wheel is made of. ``outputs.wheel.write`` writes it.

    Raises:
        BuildError: one of its kinds, for whatever keeps the wheel from being right.
    """
    queues = open_stack(project, settings)
    base = open_place(_place(project, queues, settings), queues)
    locked = hold(base, queues, settings)
    release = _release(base, locked, queues, settings)
    overlay = assemble(queues, base, release, present=settings.present, provided=settings.provided)
    if not overlay.modules:
        raise BuildError(
            f"No patch applies to vLLM {base.version} ({base.origin}); nothing to serve"
        )
    verified = [queue for queue in queues.queues if _verify(queue, overlay, queues, locked)]
    name = identity(base, release, queues, locked=locked is not None)
    _refuse_other_sdist(project, name)
    # A bare directory ships no licence; vLLM's is the Apache licence, as ours is.
    licence = base.licence() or project.licence.read_bytes()
    return Content(project, name, queues, overlay, tuple(verified), licence)


def open_stack(project: Project, settings: Settings) -> Stack:
    """Read the queues that the settings name, ours first.

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
    """Name the wheel. A release is not fetched for that; any other base is built in memory."""
    queues = open_stack(project, settings)
    place = _place(project, queues, settings)
    if not isinstance(place, Version) or settings.present or settings.provided:
        return make(project, settings).identity
    _refuse_older(place, str(place), queues)
    locked = lock.load(queues.own.directory, place) is not None
    name = identity_of_release(place, queues, locked=locked)
    _refuse_other_sdist(project, name)
    return name


def hold(base: Base, queues: Stack, settings: Settings) -> Lock | None:
    """Hold a base against the locks, before any patch is applied.

    A base is known by its content: one whose files are those of a locked release is that release,
    whatever its version says.

    Args:
        base: The base.
        queues: The queues; the locks are those of our own.
        settings: What is said of the base: one that carries patches is no release.

    Returns:
        The lock of the release that the base is; None for a base that is none of them.

    Raises:
        BaseError: if the base claims to be a release as published, and has other files.
    """
    if settings.present or settings.provided:
        return None
    directory = queues.own.directory
    claimed = lock.load(directory, Version(base.version.public))
    differing = [] if claimed is None else differing_files(claimed, base)
    if claimed is not None and not differing:
        return claimed
    if claimed is not None and base.pristine:
        listed = "\n".join(f"  {name}" for name in differing)
        raise BaseError(
            f"{base.origin} calls itself vLLM {base.version}, but differs from that release in "
            f"files this build reads:\n{listed}\n"
            "Something rewrote them (a run-time patcher?). Reinstall vLLM, or name the "
            f"directory in {BASE_VARIABLE} to build an unlocked overlay from it."
        )
    # Newest first: what two releases share is as good in either.
    for release in reversed(queues.own.releases):
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
    _refuse_older(base.version, f"{base.version} ({base.origin})", queues)
    return base.version


def _verify(queue: Queue, overlay: Overlay, queues: Stack, locked: Lock | None) -> bool:
    """Hold a queue's part of a build against its lock; tell whether it has one for this base."""
    if locked is None:
        return False
    own = queue is queues.own
    known = locked if own else lock.load(queue.directory, Version(locked.release))
    if known is None:
        return False
    verify(known, overlay, queues, queue)
    return True


def _refuse_older(version: Version, name: str, queues: Stack) -> None:
    if final(version) < queues.releases[0]:
        raise BaseError(
            f"vLLM {name} is too old; the oldest supported is {queues.releases[0]}. If its "
            f"version does not tell which release it derives from, say so in {RELEASE_VARIABLE}"
        )


def _place(project: Project, queues: Stack, settings: Settings) -> Version | Path | str:
    """Find what the settings name; without a name, what is there to build for."""
    if settings.base:
        try:
            return named(settings.base)
        except BaseError as error:
            raise BaseError(f"{BASE_VARIABLE}: {error}") from error
    installed = find_installed()
    sdist = _sdist(project)
    if sdist is not None:
        if installed is None or sdist[1] != requirement(installed.distribution, installed.version):
            return Version(sdist[1].split("==")[1])
        return INSTALLED
    if installed is not None:
        return INSTALLED
    if is_isolated():
        newest = queues.releases[-1]
        raise BaseError(
            "this build runs in an environment of its own and cannot see which vLLM the wheel is "
            f"for. Name it: {BASE_VARIABLE}={newest}, or in a uv project:\n"
            "  [tool.uv.extra-build-variables]\n"
            f'  vllm-nemo = {{ {BASE_VARIABLE} = "{newest}" }}'
        )
    locked = [r for r in queues.releases if lock.path(queues.own.directory, r).exists()]
    return (locked or list(queues.releases))[-1]


def _sdist(project: Project) -> tuple[str, str] | None:
    """Return what the metadata of an sdist settle, version and requirement; None outside of one."""
    file = project.sdist_metadata
    try:
        headers = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    release = (headers["Version"] or "").partition("+")[0].rpartition(".")[0]
    # Beside it are the distributions that patches import.
    bases = [
        text
        for text in headers.get_all("Requires-Dist") or []
        if "==" in text and Version(text.split("==")[1]).base_version == release
    ]
    if len(bases) != 1:
        raise BuildError(f"{file} does not require one vLLM release; unpack the sdist again")
    return headers["Version"], bases[0]


def _refuse_other_sdist(project: Project, name: Identity) -> None:
    """Refuse a base whose wheel would not be the one that the sdist's metadata announce."""
    sdist = _sdist(project)
    if sdist is not None and sdist != (name.version, name.requirement):
        raise BaseError(
            f"This sdist is vllm-nemo {sdist[0]} for {sdist[1]}, but the base given by "
            f"{BASE_VARIABLE} would make it {name.version} for {name.requirement}. Name "
            "the base that the sdist was made for, or build from a checkout."
        )
