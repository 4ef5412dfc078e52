"""From a setting to a build: which base is meant, what the wheel is called, what goes into it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.version import InvalidVersion, Version

from build_hooks import base as bases
from build_hooks import fetch, lock, queue
from build_hooks.assemble import Overlay, assemble
from build_hooks.errors import BaseError, BuildError

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
    if isinstance(found, Version) and not settings.present:
        loaded = load_queue()
        locked = lock.load(OVERLAY, found) is not None
        return _identity("vllm", found, loaded.revision, locked=locked)
    return make(settings).identity


@functools.lru_cache(maxsize=1)
def make(settings: Settings) -> Plan:
    """Fetch or open the base, apply the queue, hold the result against the lock.

    Raises:
        BuildError: one of its kinds, for whatever keeps the wheel from being right.
    """
    loaded = load_queue()
    found = _choose(settings.base)
    known = lock.load(OVERLAY, found) if isinstance(found, Version) else None
    base: bases.Base
    if isinstance(found, Version):
        base = bases.from_wheel(fetch.wheel(found, known.wheels if known else {}))
        if base.version != found:
            raise BaseError(f"{base.origin} is vLLM {base.version}, not {found}")
    else:
        base = found
    if Version(base.version.base_version) < loaded.releases[0]:
        raise BaseError(
            f"{base.origin} is vLLM {base.version}; the oldest supported is {loaded.releases[0]}"
        )
    return check(loaded, base, settings.present)


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
        rest = str(version)[len(version.base_version) :].strip(".").replace("+", ".")
        name += ".".join(filter(None, ["+unlocked", rest]))
    return Identity(str(Version(name)), f"{distribution}=={version.public}")


def _choose(setting: str) -> Version | bases.Base:
    """Turn the setting into a release to fetch, or a base that is on disk."""
    if not setting:
        return _default()
    if setting == "installed":
        found = bases.installed()
        if found is None:
            raise BaseError(f"{BASE_VARIABLE}=installed, but no vLLM is installed here")
        return _unless_other_sdist(found)
    path = Path(setting).expanduser()
    if path.is_dir():
        return _unless_other_sdist(bases.from_directory(path.resolve()))
    if path.is_file():
        return _unless_other_sdist(bases.from_wheel(path.resolve()))
    try:
        version = Version(setting)
    except InvalidVersion:
        message = (
            f"{BASE_VARIABLE}={setting!r} is none of: 'installed', a release such as 0.29.0, a "
            "wheel file, a directory that contains vllm/"
        )
        raise BaseError(message) from None
    if os.sep in setting or version != Version(version.public):
        raise BaseError(
            f"{BASE_VARIABLE}={setting!r} is neither on disk nor a release of the index"
        )
    sdist = _sdist_release()
    if sdist is not None and version != sdist:
        raise _other_sdist(version, sdist)
    return version


def _default() -> Version | bases.Base:
    """Take the installed vLLM, else the newest locked release; in an sdist, its own release."""
    found = bases.installed()
    sdist = _sdist_release()
    if sdist is not None:
        return found if found is not None and found.version == sdist else sdist
    if found is not None:
        return found
    releases = load_queue().releases
    locked = [release for release in releases if lock.path(OVERLAY, release).exists()]
    return (locked or list(releases))[-1]


def _sdist_release() -> Version | None:
    """Return the vLLM release that an sdist was made for; None outside of one."""
    try:
        text = (ROOT / "PKG-INFO").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    requirements = HeaderParser().parsestr(text).get_all("Requires-Dist") or []
    pinned = [r.split("==")[1] for r in requirements if r.startswith("vllm") and "==" in r]
    if len(pinned) != 1:
        raise BuildError(
            f"{ROOT / 'PKG-INFO'} does not require one vLLM release; unpack the sdist again"
        )
    return Version(pinned[0])


def _unless_other_sdist(base: bases.Base) -> bases.Base:
    sdist = _sdist_release()
    if sdist is not None and Version(base.version.public) != sdist:
        raise _other_sdist(base.version, sdist)
    return base


def _other_sdist(version: Version, sdist: Version) -> BaseError:
    return BaseError(
        f"This sdist is for vLLM {sdist}, but {BASE_VARIABLE} names vLLM {version}. Its version is "
        "settled; remove PKG-INFO from the unpacked sdist, or build from a checkout."
    )
