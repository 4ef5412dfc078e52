"""What the build shares with the wheel: the writer of tables, words, what becomes of output.

They are loaded from the wheel's sources by their path. ``import vllm_nemo`` would activate an
overlay in the process that builds, and could find another one that is installed there.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from vllm_nemo._overlay import outcomes, streams, tables
else:

    def _load(name: str) -> ModuleType:
        sources = Path(__file__).parent.parent / "overlay" / "vllm_nemo" / "_overlay"
        spec = spec_from_file_location(f"build_hooks.shared.{name}", sources / f"{name}.py")
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    outcomes, streams, tables = _load("outcomes"), _load("streams"), _load("tables")

__all__ = ["outcomes", "streams", "tables"]
