"""What the tests of the commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_hooks import base, plan, wheel
from tests.support import stand_in
from tests.support.project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Make the build library work on a project of its own, with nothing installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (plan.BASE_VARIABLE, plan.PRESENT_VARIABLE):
        # Set first, so that what a command sets is taken back as well.
        monkeypatch.setenv(name, "")
    project = Project(tmp_path)
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    for module in (plan, wheel):
        monkeypatch.setattr(module, "OVERLAY", project.overlay)
    monkeypatch.setattr(base, "_site_packages", lambda: [project.site])
    plan.make.cache_clear()
    stand_in.write(tmp_path, {"LICENSE": "Ours.\n"})
    stand_in.write_queue(project.overlay)
    project.site.mkdir()
    for release in stand_in.RELEASES:
        stand_in.write_wheel(project.wheels, release)
    project.lock(*stand_in.RELEASES)
    return project
