"""A project with the small queue, its locks, and the wheels that it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from build_hooks.assembly.assemble import Overlay, assemble
from build_hooks.bases.directory import from_directory
from build_hooks.bases.wheel import WheelBase, from_wheel
from build_hooks.files import sha256
from build_hooks.outputs.content import Content
from build_hooks.outputs.naming import Identity, requirement
from build_hooks.outputs.record import write
from build_hooks.project import Project
from build_hooks.queues import lock
from build_hooks.queues.stack import Stack, stack
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.bases.base import Base


def write_locks(queue: Path, wheels: Path, *releases: str) -> None:
    """Lock releases of the small queue, from the stand-in's wheels."""
    loaded = stack(queue)
    for release in releases:
        path = wheels / f"vllm-{release}-py3-none-any.whl"
        write(queue, assemble(loaded, from_wheel(path)), {path.name: sha256(path.read_bytes())})


def content(made: Overlay, version: str, *, locked: bool = True) -> Content:
    """Give what a wheel of an overlay would be made of, under a version of the test's choice."""
    base = made.base
    name = Identity(version, requirement(base.distribution, base.version))
    verified = (made.stack.own,) if locked else ()
    return Content(Project(Path()), name, made, verified, b"")


class Small(Project):
    """A project whose cache of wheels lies below its own root."""

    @classmethod
    def write(cls, root: Path) -> Small:
        """Write the queue, the wheels of its releases and their locks."""
        project = cls(root)
        stand_in.write(root, {"LICENSE": "Ours.\n"})
        stand_in.write_queue(project.queue)
        for release in stand_in.RELEASES:
            stand_in.write_wheel(project.wheels, release)
        project.lock(*stand_in.RELEASES)
        return project

    @property
    def cache(self) -> Path:
        """What XDG_CACHE_HOME names."""
        return self.root / "cache"

    @property
    def wheels(self) -> Path:
        return self.cache / "vllm-nemo" / "wheels"

    @property
    def environment(self) -> Path:
        """What VIRTUAL_ENV names: an environment in which nothing is installed."""
        return self.root / "environment"

    @property
    def site(self) -> Path:
        version = "python{}.{}".format(*sys.version_info)
        return self.environment / "lib" / version / "site-packages"

    def wheel(self, release: str) -> Path:
        return self.wheels / f"vllm-{release}-py3-none-any.whl"

    def open(self, release: str = "0.29.0") -> WheelBase:
        return from_wheel(self.wheel(release))

    def load(self) -> Stack:
        return stack(self.queue)

    def assemble(self, base: Base, *present: str) -> Overlay:
        return assemble(self.load(), base, present=present)

    def install(self, version: str, distribution: str = "vllm", **changes: str) -> Path:
        files = stand_in.sources(version, **changes)
        return stand_in.write(self.site, stand_in.wheel_files(files, version, distribution))

    def directory(self, name: str, release: str, **changes: str) -> Path:
        """Write sources of a release with some modules changed."""
        return stand_in.write(self.root / name, stand_in.sources(release, **changes))

    def broken(self, release: str = "0.26.0") -> Base:
        """Give a directory in which every patch conflicts."""
        return from_directory(self.directory("broken", release, models="pass\n"))

    def lock(self, *releases: str) -> None:
        write_locks(self.queue, self.wheels, *releases)

    def lock_file(self, release: str) -> Path:
        return lock.path(self.queue, Version(release))

    def edit_lock(self, release: str, **fields: Any) -> None:
        file = self.lock_file(release)
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    def variant(self, patch: str, release: str) -> Path:
        return self.queue / "patches" / patch / f"{release}.patch"

    def edit(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def add_release(self, release: str) -> None:
        """Add a release to the series, and the reasons that it asks for."""
        stand_in.write_series(self.queue, list(stand_in.PATCHES), (*stand_in.RELEASES, release))
        fields = dict(stand_in.FIELDS["head"])
        fields["not-needed"] = fields["not-needed"] | {release: "Upstream returns a float."}
        stand_in.write_patch(self.queue, "head", stand_in.PATCHES["head"], **fields)
