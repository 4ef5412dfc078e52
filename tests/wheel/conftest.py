"""Source trees to build from, and the real wheels that the project's own queue is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from build_hooks.bases.cache import fetch_wheel
from build_hooks.bases.wheel import WheelBase, from_wheel
from build_hooks.project import Project
from build_hooks.queues import lock
from tests.support import source


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> source.Tree:
    """Give a source tree with the small queue, to be built from but not to be changed."""
    return source.make(tmp_path_factory.mktemp("original"))


@pytest.fixture
def tree(original: source.Tree, tmp_path: Path) -> source.Tree:
    """Give a copy of that tree, to be spoilt."""
    return original.copy(tmp_path / "tree")


@pytest.fixture(scope="session")
def built(original: source.Tree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel that the small queue makes of the stand-in's newest release."""
    out = tmp_path_factory.mktemp("built")
    original.build("plain", out)
    (wheel,) = out.iterdir()
    return wheel


@pytest.fixture(scope="session")
def base_wheel() -> Callable[[str], WheelBase]:
    """Give the real wheel of a supported release, fetched once and kept in the user's cache."""
    opened: dict[str, WheelBase] = {}

    def give(release: str) -> WheelBase:
        if release not in opened:
            known = lock.load(Project.here().queue, Version(release))
            path = fetch_wheel(Version(release), known.wheels if known else {})
            opened[release] = from_wheel(path)
        return opened[release]

    return give
