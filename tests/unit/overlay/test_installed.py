"""How to repair a vLLM that does not match: what is told fits what is installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from vllm_nemo._overlay.installed import Installed

if TYPE_CHECKING:
    from pathlib import Path

REINSTALL = "pip install --force-reinstall --no-deps"
REBUILD = "NRL_VLLM_BASE=installed pip install .   # in vllm-nemo's source tree"


@pytest.mark.parametrize(
    ("base", "found", "commands"),
    [
        ("0.29.0", "0.29.0", (f'{REINSTALL} "vllm==0.29.0"', REBUILD)),
        ("0.29.0", "0.29.0+cu129", (f'{REINSTALL} "vllm==0.29.0"', REBUILD)),
        (
            "0.0.1.dev1+gabc",
            "0.0.1.dev1+gabc",
            (f'{REINSTALL} "vllm==0.0.1.dev1+gabc"', REBUILD),
        ),
        (
            "0.29.0",
            "0.26.0",
            ('pip install "vllm==0.29.0"', 'pip install "vllm-nemo==0.26.0.*"'),
        ),
    ],
)
def test_the_same_version_with_other_contents_is_installed_anew(
    tmp_path: Path, base: str, found: str, commands: tuple[str, str]
) -> None:
    (tmp_path / "_version.py").write_text(f"version = '{found}'\n")
    manifest: Any = SimpleNamespace(base=SimpleNamespace(distribution="vllm", version=base))
    assert Installed(tmp_path).repairs(manifest) == commands
