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
from build_hooks.bases.installed import find_installed
from build_hooks.errors import BaseError, BuildError
from build_hooks.outputs.lock import differing_files, verify
from build_hooks.outputs.naming import Identity, identity, requirement
from build_hooks.outputs.wheel import Content
from build_hooks.queues import lock
from build_hooks.queues.reader import load
from build_hooks.releases import final

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from build_hooks.project import Project
    from build_hooks.queues.lock import Lock
    from build_hooks.queues.model import Queue

BASE_VARIABLE = "NRL_VLLM_BASE"
PRESENT_VARIABLE = "NRL_VLLM_PRESENT"


@dataclass(frozen=True)
class Settings:
    """The build-time variables, as they were given."""

    base: str
    present: tuple[str, ...]

    @classmethod
    def from_environment(cls) -> Settings:
        """Read ``NRL_VLLM_BASE`` and ``NRL_VLLM_PRESENT``."""
        names = os.environ.get(PRESENT_VARIABLE, "").split(",")
        present = tuple(name.strip() for name in names if name.strip())
        return cls(os.environ.get(BASE_VARIABLE, "").strip(), present)


@functools.lru_cache(maxsize=1)
def make(project: Project, settings: Settings) -> Content:
    """Open the base, hold it against the lock, apply the queue, verify what came out.

    Args:
        project: The source tree with the queue.
        settings: Which base is meant, and which patches it carries already.

    Returns:
        What the wheel is made of. ``outputs.wheel.write`` writes it.

    Raises:
        BuildError: one of its kinds, for whatever keeps the wheel from being right.
    """
    queue = load(project.queue)
    base = open_place(_place(project, queue, settings), queue)
    _refuse_older(base.version, f"{base.version} ({base.origin})", queue)
    locked = hold(base, queue, settings.present)
    overlay = assemble(queue, base, settings.present)
    if not overlay.files:
        raise BuildError(
            f"No patch applies to vLLM {base.version} ({base.origin}); nothing to serve"
        )
    if locked is not None:
        verify(locked, overlay)
    name = identity(base.distribution, base.version, queue.revision, locked=locked is not None)
    _refuse_other_sdist(project, name)
    # A bare directory ships no licence; vLLM's is the Apache licence, as ours is.
    licence = base.licence() or project.licence.read_bytes()
    return Content(project, name, overlay, locked is not None, licence)


def identify(project: Project, settings: Settings) -> Identity:
    """Name the wheel. A release is not fetched for that; any other base is built in memory."""
    queue = load(project.queue)
    place = _place(project, queue, settings)
    if not isinstance(place, Version) or settings.present:
        return make(project, settings).identity
    _refuse_older(place, str(place), queue)
    locked = lock.load(queue.directory, place) is not None
    name = identity("vllm", place, queue.revision, locked=locked)
    _refuse_other_sdist(project, name)
    return name


def hold(base: Base, queue: Queue, present: tuple[str, ...] = ()) -> Lock | None:
    """Hold a base against the lock of its release, before any patch is applied.

    Args:
        base: The base; it is known by its content, whatever its version says.
        queue: The queue, which holds the locks.
        present: Ids of patches that the base carries; such a base is no release.

    Returns:
        The lock that the build has to reproduce; None for a base that no lock covers.

    Raises:
        BaseError: if the base claims to be a release as published, and has other files.
    """
    locked = lock.load(queue.directory, Version(base.version.public))
    if locked is None or present:
        return None
    differing = differing_files(locked, base)
    if differing and base.pristine:
        listed = "\n".join(f"  {name}" for name in differing)
        raise BaseError(
            f"{base.origin} calls itself vLLM {base.version}, but differs from that release in "
            f"files this build reads:\n{listed}\n"
            "Something rewrote them (a run-time patcher?). Reinstall vLLM, or name the "
            f"directory in {BASE_VARIABLE} to build an unlocked overlay from it."
        )
    return None if differing else locked


def _refuse_older(version: Version, name: str, queue: Queue) -> None:
    if final(version) < queue.releases[0]:
        raise BaseError(f"vLLM {name} is too old; the oldest supported is {queue.releases[0]}")


def _place(project: Project, queue: Queue, settings: Settings) -> Version | Path | str:
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
    locked = [r for r in queue.releases if lock.path(queue.directory, r).exists()]
    return (locked or list(queue.releases))[-1]


def _sdist(project: Project) -> tuple[str, str] | None:
    """Return what the metadata of an sdist settle, version and requirement; None outside of one."""
    file = project.sdist_metadata
    try:
        headers = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    requirements = headers.get_all("Requires-Dist") or []
    if len(requirements) != 1 or "==" not in requirements[0] or not headers["Version"]:
        raise BuildError(f"{file} does not require one vLLM release; unpack the sdist again")
    return headers["Version"], requirements[0]


def _refuse_other_sdist(project: Project, name: Identity) -> None:
    """Refuse a base whose wheel would not be the one that the sdist's metadata announce."""
    sdist = _sdist(project)
    if sdist is not None and sdist != (name.version, name.requirement):
        raise BaseError(
            f"This sdist is vllm-nemo {sdist[0]} for {sdist[1]}, but the base given by "
            f"{BASE_VARIABLE} would make it {name.version} for {name.requirement}. Name "
            "the base that the sdist was made for, or build from a checkout."
        )
