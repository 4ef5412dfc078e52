"""The life of a build: from a setting to everything that goes into the wheel."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.version import Version

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.choice import INSTALLED, Place, named, open_place
from build_hooks.bases.installed import find_installed
from build_hooks.errors import BaseError, BuildError
from build_hooks.outputs.lock import differing_files, verify
from build_hooks.outputs.naming import Identity, identity, requirement
from build_hooks.outputs.wheel import Content
from build_hooks.queues import lock
from build_hooks.queues.reader import load
from build_hooks.releases import final, spell

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
    base = open_place(place(project, queue, settings), queue)
    refuse_older(base.version, queue, base.origin)
    locked = hold(base, queue, settings.present)
    overlay = assemble(queue, base, settings.present)
    if not overlay.modules:
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
    release = place(project, queue, settings)
    if not isinstance(release, Version) or settings.present:
        return make(project, settings).identity
    locked = lock.load(queue.directory, release) is not None
    name = identity("vllm", release, queue.revision, locked=locked)
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
            "Something rewrote them (a run-time patcher?). Reinstall vLLM, or fetch its wheel "
            "again; to build an unlocked overlay from these files, name their directory in "
            f"{BASE_VARIABLE}."
        )
    return None if differing else locked


def place(project: Project, queue: Queue, settings: Settings) -> Place:
    """Find what the settings name; without a name, what is there to build for.

    Args:
        project: The source tree; an sdist is made for one release.
        queue: The queue.
        settings: The settings.

    Returns:
        What ``bases.choice.open_place`` opens.

    Raises:
        BaseError: if the settings name nothing, or a release that is too old.
    """
    found = _named(settings.base) if settings.base else _unnamed(project, queue)
    if isinstance(found, Version):
        refuse_older(found, queue)
    return found


def refuse_older(version: Version, queue: Queue, origin: str = "") -> None:
    """Refuse a vLLM that is older than every supported release.

    Raises:
        BaseError: if it is; ``origin`` says in the message where the version was read.
    """
    if final(version) < queue.releases[0]:
        where = f" ({origin})" if origin else ""
        oldest = queue.releases[0]
        raise BaseError(f"vLLM {version}{where} is too old; the oldest supported is {oldest}")


def _named(setting: str) -> Place:
    try:
        return named(setting)
    except BaseError as error:
        raise BaseError(f"{BASE_VARIABLE}: {error}") from error


def _unnamed(project: Project, queue: Queue) -> Place:
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
    locked = [r for r in queue.releases if lock.path(queue.directory, r).exists()]
    return (locked or list(queue.releases))[-1]


def _announced(project: Project) -> tuple[Identity, Version] | None:
    """Return what the metadata of an sdist settle, and the release; None outside of one."""
    file = project.sdist_metadata
    if not file.exists():
        return None
    headers = HeaderParser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
    requirements = headers.get_all("Requires-Dist") or []
    _, _, text = (requirements or [""])[0].partition("==")
    release = spell(text)
    if len(requirements) != 1 or release is None or not headers["Version"]:
        raise BuildError(f"{file} does not require one vLLM release; unpack the sdist again")
    return Identity(headers["Version"], requirements[0]), release


def _refuse_other_sdist(project: Project, name: Identity) -> None:
    """Refuse a base whose wheel would not be the one that the sdist's metadata announce."""
    announced = _announced(project)
    if announced is not None and announced[0] != name:
        sdist, _ = announced
        raise BaseError(
            f"This sdist is vllm-nemo {sdist.version} for {sdist.requirement}, but this base would "
            f"make it {name.version} for {name.requirement}. Name the base that the sdist was made "
            f"for in {BASE_VARIABLE}, or build from a checkout."
        )
