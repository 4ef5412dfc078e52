"""list_patches() and require(), in processes of their own."""

from __future__ import annotations

import shutil

import pytest

from tests.support import installed


def test_the_patches(shared: installed.Interpreter) -> None:
    code = """\
import vllm_nemo
patches = vllm_nemo.list_patches()
print(type(patches).__name__, isinstance(patches[0], vllm_nemo.Patch))
for p in patches:
    print(p.id, p.outcome, p.variant, p.switch, *p.modules, *(u.fixed_in for u in p.upstream))
"""
    assert shared.prints("-c", code).split("\n") == [
        "tuple True",
        "first applied 0.25.0 always vllm.models 0.30.0",
        "second applied 0.27.0 NRL_VLLM_SECOND vllm.added vllm.engine vllm.engine.core vllm.extra vllm.extra.inside",  # noqa: E501
        "third not-needed None always",
        "fourth present 0.28.0 always",
    ]


@pytest.mark.parametrize("patch", ["first", "second", "fourth"])
def test_require_returns_a_patch_that_is_there(shared: installed.Interpreter, patch: str) -> None:
    code = f"import sys, vllm_nemo; print(vllm_nemo.require({patch!r}).id, 'vllm' in sys.modules)"
    assert shared.prints("-c", code) == f"{patch} False"


def test_require_after_vllm_was_imported(shared: installed.Interpreter) -> None:
    code = "import vllm.models, vllm_nemo; print(vllm_nemo.require('first').id)"
    assert shared.prints("-c", code) == "first"


@pytest.mark.parametrize(
    ("patch", "parts"),
    [
        ("nope", ["has no patch 'nope'", "first, second, third, fourth"]),
        ("third", ["does not carry the patch 'third'", "Fixed upstream in 0.28.0."]),
    ],
)
def test_require_names_patch_release_and_reason(
    shared: installed.Interpreter, patch: str, parts: list[str]
) -> None:
    error = shared.fails("-c", f"import vllm_nemo; vllm_nemo.require({patch!r})")
    name = f"vllm-nemo {installed.OVERLAY_VERSION} for vLLM {installed.BASE_VERSION}"
    assert f"vllm_nemo.OverlayError: {name}" in error
    for part in parts:
        assert part in error


REQUIRE = "import vllm_nemo; vllm_nemo.require('first')"


def test_require_when_switched_off(shared: installed.Interpreter) -> None:
    error = shared.fails("-c", REQUIRE, env={"NRL_VLLM_OVERLAY": "off"})
    assert "'first' is required, and NRL_VLLM_OVERLAY=off runs stock vLLM" in error


def test_require_when_the_finder_was_removed(shared: installed.Interpreter) -> None:
    code = """\
import sys, vllm_nemo
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "vllm_nemo"]
vllm_nemo.require("first")
"""
    assert "is not active in this process" in shared.fails("-c", code)


def test_require_without_vllm(own: installed.Interpreter) -> None:
    shutil.rmtree(own.file("vllm"))
    error = own.fails("-c", REQUIRE)
    assert "vLLM is not installed" in error
    assert 'pip install "vllm==0.29.0"' in error


def test_require_with_another_vllm(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").write_text("")
    assert "changed: vllm/models.py" in own.fails("-c", REQUIRE)


def test_public_names(shared: installed.Interpreter) -> None:
    code = """\
import vllm_nemo
missing = [name for name in vllm_nemo.__all__ if not hasattr(vllm_nemo, name)]
print(missing, set(vllm_nemo.__all__) <= set(dir(vllm_nemo)), hasattr(vllm_nemo, "nonsense"))
from vllm_nemo import *
import pickle
print(pickle.loads(pickle.dumps(OverlayError("x"))), issubclass(OverlayError, ImportError))
"""
    assert shared.prints("-c", code).split("\n") == ["[] True False", "x False"]
