"""A project with the small queue, its locks, and the wheels that it is for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_hooks import assemble, base, fetch, lock, queue
from tests.support import stand_in


@dataclasses.dataclass
class Project:
    root: Path

    @property
    def overlay(self) -> Path:
        return self.root / "overlay"

    @property
    def site(self) -> Path:
        """The site-packages of the environment that runs the build."""
        return self.root / "site"

    @property
    def wheels(self) -> Path:
        return fetch.cache_directory()

    def install(self, version: str, distribution: str = "vllm") -> Path:
        files = stand_in.wheel_files(stand_in.sources(version), version, distribution)
        return stand_in.write(self.site, files)

    def directory(self, name: str, release: str, **changes: str) -> Path:
        """Write sources of a release with some modules changed."""
        files = stand_in.sources(release) | {f"vllm/{k}.py": v for k, v in changes.items()}
        return stand_in.write(self.root / name, files)

    def lock(self, *releases: str) -> None:
        loaded = queue.load(self.overlay)
        for release in releases:
            path = fetch.find(Version(release), self.wheels)
            assert path is not None
            made = assemble.assemble(loaded, base.from_wheel(path))
            lock.write(self.overlay, made, {path.name: assemble.sha256(path.read_bytes())})

    def add_release(self, release: str) -> None:
        """Add a release to the series, and the reasons that it asks for."""
        stand_in.write_series(self.overlay, list(stand_in.PATCHES), (*stand_in.RELEASES, release))
        fields = dict(stand_in.FIELDS["head"])
        fields["not-needed"] = fields["not-needed"] | {release: "Upstream returns a float."}
        stand_in.write_patch(self.overlay, "head", stand_in.PATCHES["head"], **fields)

    def edit_lock(self, release: str, **fields: Any) -> None:
        file = self.overlay / "locks" / f"{release}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
