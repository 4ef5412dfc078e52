"""Which Requires-Python would let vLLM onto a Python that ignores import lines of .pth files."""

from __future__ import annotations

import pytest

from tests.support.pep_829 import without_the_line


@pytest.mark.parametrize("requires", ["<3.15,>=3.10", "<3.18,>=3.10", "==3.12.*", "~=3.17.0"])
def test_these_allow_none(requires):
    assert without_the_line(requires) == []


@pytest.mark.parametrize(
    ("requires", "some"),
    [
        ("<3.19,>=3.10", ["3.18"]),
        ("<=3.18.0", ["3.18"]),
        ("<3.21,>=3.19", ["3.19", "3.20"]),
    ],
)
def test_these_allow_some(requires, some):
    assert without_the_line(requires) == some


@pytest.mark.parametrize("requires", [">=3.10", "", "~=3.10", ">=3.10,!=3.14.*"])
def test_without_an_upper_bound_all_are_allowed(requires):
    assert without_the_line(requires)[:2] == ["3.18", "3.19"]
