"""The project's one writer of tables for a terminal.

It is loaded by its path: an import of vllm_nemo would activate an overlay.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from harness.tools import ROOT

if TYPE_CHECKING:
    from vllm_nemo._overlay.tables import Row, render
else:
    _path = ROOT / "overlay" / "vllm_nemo" / "_overlay" / "tables.py"
    _specification = importlib.util.spec_from_file_location("_tables", _path)
    _module = importlib.util.module_from_spec(_specification)
    _specification.loader.exec_module(_module)
    Row, render = _module.Row, _module.render

__all__ = ["Row", "render"]
