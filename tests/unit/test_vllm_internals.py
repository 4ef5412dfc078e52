"""The one module that reaches into vLLM: a release that it was not written for is told as such."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.support import vllm_internals
from tests.support.vllm_internals import Place, UnknownReleaseError


@pytest.fixture
def vllm(monkeypatch):
    """A vLLM with one thing that moved: ``Thing`` is in ``old`` before 0.30.0, then in ``new``."""
    fake = ModuleType("vllm")
    fake.__version__ = "0.29.0+cpu"
    monkeypatch.setitem(sys.modules, "vllm", fake)
    for name in ("old", "new"):
        module = ModuleType(f"vllm.{name}")
        module.Thing = f"the {name} one"
        monkeypatch.setitem(sys.modules, module.__name__, module)
    places = {
        "Thing": [
            Place("vllm.old", until="0.30.0"),
            Place("vllm.new", since="0.30.0", until="0.33.0", note="it became a function"),
        ]
    }
    monkeypatch.setattr(vllm_internals, "_PLACES", places)
    return fake


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("0.25.0", "the old one"),
        ("0.29.0+cpu", "the old one"),
        ("0.30.0", "the new one"),
        ("0.30.0rc1", "the new one"),
        ("0.32.1", "the new one"),
    ],
)
def test_a_name_is_found_where_the_release_has_it(vllm, version, found):
    vllm.__version__ = version
    assert vllm_internals.Thing == found


@pytest.mark.parametrize("version", ["0.24.9", "0.33.0", "1.0.0"])
def test_a_name_in_a_release_that_nobody_has_looked_at(vllm, version):
    vllm.__version__ = version
    with pytest.raises(UnknownReleaseError) as caught:
        _ = vllm_internals.Thing
    message = str(caught.value)
    assert "Thing for vLLM 0.25.0 to before 0.30.0, 0.30.0 to before 0.33.0" in message
    assert f"this is vLLM {version}" in message
    assert "it became a function" in message
    assert "vllm_internals.py" in message


def test_a_name_without_a_place(vllm):
    with pytest.raises(AttributeError, match="'Other'"):
        _ = vllm_internals.Other


def test_a_function_in_a_release_that_it_was_not_written_for(vllm):
    @vllm_internals.known(since="0.27.0", until="0.32.0", note="look at the sink")
    def report(kernel):
        return kernel.name

    kernel = SimpleNamespace(name="k")
    for version in ("0.27.0", "0.31.4"):
        vllm.__version__ = version
        assert report(kernel) == "k"
    for version in ("0.26.0", "0.32.0"):
        vllm.__version__ = version
        with pytest.raises(UnknownReleaseError, match=r"report .*0\.27\.0.*look at the sink"):
            report(kernel)


def test_a_name_has_one_place_in_each_release():
    for name, places in vllm_internals._PLACES.items():
        for earlier, later in itertools.pairwise(places):
            assert earlier.until is not None, name
            assert vllm_internals._numbers(earlier.until) <= vllm_internals._numbers(later.since)
