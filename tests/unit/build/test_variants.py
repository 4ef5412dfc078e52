"""A chain of variants, each of which leaves out what an older one says, is the whole diff."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks.bases.index.parts import LockedBase
from build_hooks.diffs.applier import apply
from build_hooks.diffs.reader import parse
from build_hooks.queues.reader import load
from build_hooks.queues.stack import Stack
from build_hooks.upkeep.refresh import refresh
from build_hooks.upkeep.trees import PatchTree
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.queues.model import Patch, Queue

RELEASES = ("0.25.0", "0.26.0", "0.27.0", "0.28.0")
A, B = "vllm/a.py", "vllm/b.py"


class File(NamedTuple):
    """A file in each release: as it is in vLLM, and as the patch makes it, if it changes it."""

    stock: Mapping[str, bytes | None]
    wanted: Mapping[str, bytes]


def lines(most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(["a\n", "b\n", "\n"]), max_size=most)


@st.composite
def histories(draw: st.DrawFn, *, always: bool) -> File:
    """Give a file that a patch changes in every release, or in some that follow each other.

    From release to release, the lines around the change may move, and what is changed, and what it
    is changed to: alone or together, so that diffs are often the same, or nearly.
    """
    begin, end = 0, len(RELEASES)
    if not always:
        begin = draw(st.integers(0, end))
        end = draw(st.integers(begin, end))
    stock: dict[str, bytes | None] = {}
    wanted: dict[str, bytes] = {}
    above, old, new, below = draw(lines(2)), draw(lines(2)), draw(lines(2)), draw(lines(2))
    for number, release in enumerate(RELEASES):
        above = draw(st.just(above) | lines(2))
        old = draw(st.just(old) | lines(2))
        new = draw(st.just(new) | lines(2))
        marks = ["def f():\n"], ["end\n"]
        # Without them, the change begins the file, or ends it.
        first, last = (draw(st.sampled_from([mark, mark, []])) for mark in marks)
        stock[release] = "".join([*above, *first, *old, *last, *below]).encode()
        if begin <= number < end:
            changed = [*new, "and more\n"] if new == old else new
            wanted[release] = "".join([*above, *first, *changed, *last, *below]).encode()
            if draw(st.integers(0, 4)) == 0:
                stock[release] = None
    return File(stock, wanted)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("variants")


def written_afresh(scratch: Path, patch: Patch, base: LockedBase, tree: Path) -> str:
    queue = replace(load_plain(scratch), patches=(patch,))
    alone = Stack((queue,), (patch,))
    return refresh(alone, patch, base, PatchTree(tree), scratch / "port")


@given(histories(always=True), histories(always=False))
def test_what_refresh_writes_is_put_together_again(scratch: Path, a: File, b: File) -> None:
    shutil.rmtree(scratch)
    files = {A: a, B: b}
    after = RELEASES[RELEASES.index(max(b.wanted)) + 1 :] if b.wanted else ()
    ends = dict.fromkeys([B], after[0]) if after else {}
    stand_in.write_series(scratch, ["one"], RELEASES)
    (patch,) = load_plain(scratch).patches
    patch = replace(patch, ends={path: Version(end) for path, end in ends.items()}, variants=())
    written = {}
    for release in RELEASES:
        base = LockedBase(
            Version(release),
            release,
            {path: file.stock[release] for path, file in files.items()},
            None,
        )
        wanted = {path: f.wanted[release] for path, f in files.items() if release in f.wanted}
        tree = stand_in.write(scratch / "trees" / release, wanted)
        text = written_afresh(scratch, patch, base, tree)
        whole = replace(patch, variants=())
        whole_text = written_afresh(scratch, whole, base, tree)
        patch = patch.with_variant(Version(release), parse(text.encode()) if text else ())
        if text:
            written[release] = text
        # Put together, it is what one variant of all files would say.
        diff = patch.diff(Version(release))
        assert diff is not None
        for made, expected in zip(diff.files, parse(whole_text.encode()), strict=True):
            assert made.same_change(expected)
        assert {f.path: apply(f, base.files[f.path])[0] for f in diff.files} == wanted
    # The strict reader finds no fault: every release is served, no diff repeats an older one.
    stand_in.write_patch(scratch, "one", written, **({"ends": ends} if ends else {}))
    (read,) = load(scratch).patches
    assert read == patch


def load_plain(directory: Path) -> Queue:
    stand_in.write_patch(directory, "one", {"0.25.0": stand_in.PATCHES["head"]["0.25.0"]})
    queue = load(directory)
    (directory / "patches" / "one" / "0.25.0.patch").unlink()
    return queue
