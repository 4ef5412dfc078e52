"""Source trees to build from, and the real wheels that the project's own queue is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from build_hooks import base, fetch, lock, plan
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
def base_wheel() -> Callable[[str], base.WheelBase]:
    """Give the real wheel of a supported release, fetched once and kept in the user's cache."""
    opened: dict[str, base.WheelBase] = {}

    def give(release: str) -> base.WheelBase:
        if release not in opened:
            known = lock.load(plan.OVERLAY, Version(release))
            path = fetch.wheel(Version(release), known.wheels if known else {})
            opened[release] = base.from_wheel(path)
        return opened[release]

    return give
