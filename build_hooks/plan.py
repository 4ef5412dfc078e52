"""From a setting to a build: which base is meant, what the wheel is called, what goes into it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from build_hooks import base as bases
from build_hooks import fetch, lock, queue
from build_hooks.assemble import Overlay, assemble
from build_hooks.errors import BaseError, BuildError

if TYPE_CHECKING:
    from collections.abc import Callable

BASE_VARIABLE = "NRL_VLLM_BASE"
PRESENT_VARIABLE = "NRL_VLLM_PRESENT"

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "overlay"


@dataclass(frozen=True)
class Identity:
    """What the wheel's metadata say, known before anything large is fetched."""

    version: str
    requirement: str


@dataclass(frozen=True)
class Plan:
    """A build with everything checked: from here on only files are written."""

    identity: Identity
    overlay: Overlay
    locked: bool
    licence: bytes


@dataclass(frozen=True)
class Settings:
    """The two build-time variables, as they were given."""

    base: str
    present: tuple[str, ...]

    @classmethod
    def from_environment(cls) -> Settings:
        """Read ``NRL_VLLM_BASE`` and ``NRL_VLLM_PRESENT``."""
        names = os.environ.get(PRESENT_VARIABLE, "").split(",")
        present = tuple(name.strip() for name in names if name.strip())
        return cls(os.environ.get(BASE_VARIABLE, "").strip(), present)


def identify(settings: Settings) -> Identity:
    """Name the wheel. A release is not fetched for that; any other base is built in memory."""
    found = _choose(settings.base)
    if not isinstance(found, Version) or settings.present:
        return make(settings).identity
    loaded = load_queue()
    _refuse_older(found, str(found), loaded)
    locked = lock.load(OVERLAY, found) is not None
    identity = _identity("vllm", found, loaded.revision, locked=locked)
    _refuse_other_sdist(identity)
    return identity


@functools.lru_cache(maxsize=1)
def make(settings: Settings) -> Plan:
    """Fetch or open the base, apply the queue, hold the result against the lock.

    Raises:
        BuildError: one of its kinds, for whatever keeps the wheel from being right.
    """
    loaded = load_queue()
    found = _choose(settings.base)
    base: bases.Base | None
    if isinstance(found, Version):
        _refuse_older(found, str(found), loaded)
        base = fetch.base(found, lock.load(OVERLAY, found))
        if base.version != found:
            raise BaseError(f"{base.origin} is vLLM {base.version}, not {found}")
    else:
        base = found()
        if base is None:
            raise BaseError(f"{BASE_VARIABLE}=installed, but no vLLM is installed here")
    _refuse_older(base.version, f"{base.version} ({base.origin})", loaded)
    plan = check(loaded, base, settings.present)
    _refuse_other_sdist(plan.identity)
    return plan


def _refuse_older(version: Version, name: str, loaded: queue.Queue) -> None:
    if Version(version.base_version) < loaded.releases[0]:
        raise BaseError(f"vLLM {name} is too old; the oldest supported is {loaded.releases[0]}")


def check(loaded: queue.Queue, base: bases.Base, present: tuple[str, ...] = ()) -> Plan:
    """Apply the queue to a base and hold the result against the lock of its release."""
    overlay = assemble(loaded, base, present)
    if not overlay.modules:
        raise BuildError(
            f"No patch applies to vLLM {base.version} ({base.origin}); nothing to serve"
        )
    known = lock.load(OVERLAY, Version(base.version.public))
    locked = known is not None and not present
    if known is not None and locked:
        differing = lock.stock_differences(known, overlay)
        if differing and base.pristine:
            listed = "\n".join(f"  {name}" for name in differing)
            raise BaseError(
                f"{base.origin} calls itself vLLM {base.version}, but differs from that release in "
                f"files this build reads:\n{listed}\n"
                "Something rewrote them (a run-time patcher?). Reinstall vLLM, or name the "
                f"directory in {BASE_VARIABLE} to build an unlocked overlay from it."
            )
        locked = not differing
        if locked:
            lock.verify(known, overlay)
    identity = _identity(base.distribution, base.version, loaded.revision, locked=locked)
    # A bare directory ships no licence; vLLM's is the Apache licence, as ours is.
    licence = base.licence() or (ROOT / "LICENSE").read_bytes()
    return Plan(identity, overlay, locked, licence)


def load_queue() -> queue.Queue:
    """Load the project's own queue."""
    return queue.load(OVERLAY)


def _identity(distribution: str, version: Version, revision: int, *, locked: bool) -> Identity:
    name = f"{version.base_version}.{revision}"
    if not locked:
        # What sets the base apart from a release is told after the mark.
        rest = str(version)[len(version.base_version) :].strip(".+").replace("+", ".")
        name += ".".join(filter(None, ["+unlocked", rest]))
    return Identity(str(Version(name)), _requirement(distribution, version))


def _requirement(distribution: str, version: Version) -> str:
    return f"{distribution}=={version.public}"


def _choose(setting: str) -> Version | Callable[[], bases.Base | None]:
    """Turn the setting into a release to fetch, or what opens a base that is on disk."""
    if not setting:
        return _default()
    found = bases.named(setting)
    if found is None:
        message = (
            f"{BASE_VARIABLE}={setting!r} is none of: 'installed', a release such as 0.29.0, a "
            "wheel file, a directory that contains vllm/. Give an absolute path: front ends build "
            f"in directories of their own (this one: {Path.cwd()})"
        )
        raise BaseError(message)
    if isinstance(found, Version) and found != Version(found.public):
        raise BaseError(
            f"{BASE_VARIABLE}={setting!r} is neither on disk nor a release of the index"
        )
    return found


def _default() -> Version | Callable[[], bases.Base | None]:
    """Take the installed vLLM, else the newest locked release; in an sdist, its own release."""
    found = bases.installed()
    sdist = _sdist()
    if sdist is not None:
        if found is not None and _requirement(found.distribution, found.version) == sdist[1]:
            return lambda: found
        return Version(sdist[1].split("==")[1])
    if found is not None:
        return lambda: found
    releases = load_queue().releases
    locked = [release for release in releases if lock.path(OVERLAY, release).exists()]
    return (locked or list(releases))[-1]


def _sdist() -> tuple[str, str] | None:
    """Return what the metadata of an sdist settle, version and requirement; None outside of one."""
    file = ROOT / "PKG-INFO"
    try:
        headers = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    requirements = headers.get_all("Requires-Dist") or []
    if len(requirements) != 1 or "==" not in requirements[0] or not headers["Version"]:
        raise BuildError(f"{file} does not require one vLLM release; unpack the sdist again")
    return headers["Version"], requirements[0]


def _refuse_other_sdist(identity: Identity) -> None:
    """Refuse a base whose wheel would not be the one that the sdist's metadata announce."""
    sdist = _sdist()
    if sdist is not None and sdist != (identity.version, identity.requirement):
        raise BaseError(
            f"This sdist is vllm-nemo {sdist[0]} for {sdist[1]}, but the base given by "
            f"{BASE_VARIABLE} would make it {identity.version} for {identity.requirement}. Name "
            "the base that the sdist was made for, or build from a checkout."
        )
