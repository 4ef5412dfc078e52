"""What the tests of the build share."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_hooks import build
from build_hooks.assembly.assemble import Overlay, assemble
from build_hooks.bases.wheel import from_wheel
from build_hooks.queues.stack import stack
from tests.support import stand_in
from tests.support.project import Small


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Give a project of its own: its wheels in the cache, nothing installed, nothing set."""
    project = Small.write(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.cache))
    monkeypatch.setenv("VIRTUAL_ENV", str(project.environment))
    # A test that asks an index sets pip up to know its own.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in build.VARIABLES:
        # Set first, so that what a command sets is taken back as well.
        monkeypatch.setenv(name, "")
    return project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """Give the small queue on its newest release."""
    directory = tmp_path_factory.mktemp("made")
    queue = stack(stand_in.write_queue(directory / "overlay"))
    return assemble(queue, from_wheel(stand_in.write_wheel(directory, "0.29.0")))
