"""Conflicts that a person would resolve without a thought, and those that stay for one."""

from __future__ import annotations

import pytest

from build_hooks.upkeep.infer import resolve
from build_hooks.upkeep.merge import is_marked, merge

OLD = """\
import os
from vllm.b import B


class A:
    def f(self, x):
        first(x)
        second(x)
        third(x)
        return x

    def g(self, x):
        first(x)
        return x
"""


def merged(new: str, patch: str, old: str = OLD) -> tuple[str, list[str]]:
    text, number = merge(new.encode(), old.encode(), patch.encode())
    assert number, "git has merged it by itself"
    content, notes = resolve(text, new.encode())
    return content.decode(), notes


def left(new: str, patch: str, old: str = OLD) -> None:
    """Tell that a conflict stays as it is marked."""
    text, number = merge(new.encode(), old.encode(), patch.encode())
    assert number
    assert resolve(text, new.encode()) == (text, [])


def test_imports_are_placed_by_what_they_import() -> None:
    new = OLD.replace("from vllm.b import B\n", "from vllm.b import B\nfrom vllm.d import D\n")
    patch = OLD.replace("from vllm.b import B\n", "from vllm.b import B\nfrom vllm.c import C\n")
    found, (note,) = merged(new, patch)
    assert found.startswith("import os\nfrom vllm.b import B\nfrom vllm.c import C\nfrom vllm.d")
    assert note == "line 3: imports, by what they import: 'from vllm.c import C' was placed"


def test_an_import_that_the_patch_takes_out_goes() -> None:
    new = OLD.replace("from vllm.b import B\n", "from vllm.a import A\nfrom vllm.b import B\n")
    patch = OLD.replace("from vllm.b import B\n", "from vllm.c import C\n")
    found, (note,) = merged(new, patch)
    assert found.startswith("import os\nfrom vllm.a import A\nfrom vllm.c import C\n\n")
    assert "'from vllm.b import B' was taken out" in note


def test_a_name_within_parentheses() -> None:
    old = "from m import (\n    b,\n    e,\n)\n"
    found, _ = merged(
        old.replace("    e,", "    d,\n    e,"), old.replace("    e,", "    c,\n    e,"), old
    )
    assert found == "from m import (\n    b,\n    c,\n    d,\n    e,\n)\n"


@pytest.mark.parametrize(
    ("new", "note"),
    [
        ("        zeroth(x)\n        second(x)\n", "was put before 'second(x)'"),
        ("        first(x)\n        other(x)\n", "was put behind 'first(x)'"),
    ],
)
def test_one_anchor_is_enough(new: str, note: str) -> None:
    both = "        first(x)\n        second(x)\n"
    found, (told,) = merged(
        OLD.replace(both, new).replace("        third(x)\n", "        last(x)\n"),
        OLD.replace(both, "        first(x)\n        hook(x)\n        second(x)\n"),
    )
    assert note in told
    assert found.count("hook(x)") == 1
    assert not is_marked(found.encode())


def test_an_anchor_that_stands_twice_in_the_function_is_none() -> None:
    both = "        first(x)\n        second(x)\n"
    left(
        OLD.replace(both, "        first(x)\n        more(x)\n        first(x)\n"),
        OLD.replace(both, "        first(x)\n        hook(x)\n        second(x)\n"),
    )


def test_lines_that_the_patch_replaces_are_found_as_they_are() -> None:
    found, (told,) = merged(
        OLD.replace(
            "        first(x)\n        second(x)\n", "        zeroth(x)\n        second(x)\n"
        ),
        OLD.replace("        second(x)\n", "        if x:\n            second(x)\n"),
    )
    assert "        zeroth(x)\n        if x:\n            second(x)\n" in found
    assert "replaces 'second(x)'" in told


def test_statements_in_one_place_are_kept_the_new_ones_first() -> None:
    place = "        second(x)\n"
    found, (told,) = merged(
        OLD.replace(place, place + "        y = x + 1\n"),
        OLD.replace(place, place + "        hook(x)\n"),
    )
    assert "        second(x)\n        y = x + 1\n        hook(x)\n        third(x)\n" in found
    assert told.endswith("'hook(x)' comes after 'y = x + 1', which is new: is that the order?")


@pytest.mark.parametrize(
    ("new", "patch"),
    [
        # Both give x its value: a norm that is applied twice is no merge.
        ("        x = norm(x)\n", "        x = hook(x)\n"),
        ("        self.norm = 1\n", "        self.norm = 2\n"),
        # One half of a statement.
        ("        call(\n", "        hook(x)\n"),
        # Another depth.
        ("        if x:\n            pass\n", "            hook(x)\n"),
    ],
)
def test_what_could_be_the_same_thing_twice_stays(new: str, patch: str) -> None:
    place = "        second(x)\n"
    left(OLD.replace(place, place + new), OLD.replace(place, place + patch))


def test_a_change_of_the_lines_that_the_patch_changes_stays() -> None:
    left(
        OLD.replace("        second(x)\n", "        second(x, 1)\n"),
        OLD.replace("        second(x)\n", "        second(hook(x))\n"),
    )
