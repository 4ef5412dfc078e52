"""Environments with the overlay and a stand-in for vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import installed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    """Give an environment that no test changes."""
    return installed.install(tmp_path_factory.mktemp("shared") / "env")


@pytest.fixture
def own(tmp_path: Path) -> installed.Interpreter:
    """Give an environment that the test may break."""
    return installed.install(tmp_path / "env")
