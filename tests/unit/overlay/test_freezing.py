"""What goes into a frozen program: the imports of served files, which no tool looks into."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from vllm_nemo._overlay.freezing import collect, hook_directories


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a directory with a vLLM of one package and two modules."""
    for path in ("vllm/__init__.py", "vllm/models.py", "vllm/engine/__init__.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import secrets, json.tool as t", {"secrets", "json.tool"}),
        ("def f():\n    from secrets import choice", {"secrets"}),
        ("from vllm import models, engine, __version__", {"vllm", "vllm.models", "vllm.engine"}),
        ("from vllm.models import Model", {"vllm.models"}),
        ("from . import core", {"vllm.engine"}),
        ("from .core import X", {"vllm.engine.core"}),
        ("from .. import models", {"vllm", "vllm.models"}),
        ("from ..models import Model", {"vllm.models"}),
        ("try:\n    import no_such_module.at_all\nexcept ImportError:\n    pass", set()),
    ],
)
def test_what_a_file_of_a_package_imports(root: Path, text: str, names: set[str]) -> None:
    assert set(collect._imported(ast.parse(text), "vllm.engine", root)) == names


def test_every_module_of_ours_goes_with_it() -> None:
    found = set(collect._own_modules())
    assert {"vllm_nemo", "vllm_nemo._overlay.guard", "vllm_nemo.patches"} < found
    assert not [name for name in found if "hooks" in name or "_modules" in name]


def test_the_hooks_are_where_pyinstaller_is_told() -> None:
    (directory,) = map(Path, hook_directories())
    assert (directory / "hook-vllm.py").is_file()
    scripts = ast.literal_eval((directory / "rthooks.dat").read_text())
    for names in scripts.values():
        assert all((directory / "rthooks" / name).is_file() for name in names)
