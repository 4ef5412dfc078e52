"""The spelling of releases: many at the door, one inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks.releases import spell, strict


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("0.29.0", "0.29.0"),
        ("0.29", "0.29.0"),
        ("v0.29.0", "0.29.0"),
        (" V0.29\n", "0.29.0"),
        ("0.29.0.0", "0.29.0"),
        ("0.29.0.1", "0.29.0.1"),
        ("0.29rc1", "0.29.0rc1"),
        ("0.29.dev3+G.abc", "0.29.0.dev3+g.abc"),
        ("0.29.0-1", "0.29.0.post1"),
        ("1!0.29", "1!0.29.0"),
    ],
)
def test_every_spelling_of_a_version_becomes_vllms_own(text: str, spelled: str) -> None:
    assert str(spell(text)) == spelled


@pytest.mark.parametrize("text", ["", "new", "0.29.x", "./0.29.0", "0.29.0/", "\0", "9" * 5000])
def test_anything_else_is_no_version(text: str) -> None:
    assert spell(text) is None


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.sampled_from(["", "rc1", ".dev2"]))
def test_versions_that_are_equal_are_spelled_alike(release: list[int], rest: str) -> None:
    text = ".".join(map(str, release)) + rest
    spelled = spell(text)
    assert spelled == Version(text)
    padded = spell(".".join(map(str, [*release, 0, 0])) + rest)
    assert str(spelled) == str(padded)


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.29.0", "0.29.0"), ("0.29", None), ("v0.29.0", None), ("0.29.0rc1", None), ("x", None)],
)
def test_a_queue_has_to_write_a_release_as_vllm_does(text: str, release: str | None) -> None:
    assert strict(text) == (Version(release) if release else None)
