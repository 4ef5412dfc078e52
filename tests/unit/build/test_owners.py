"""Who owns each line of a file, by a model in which every line is a token of its own."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from build_hooks.diffs.applier import apply
from build_hooks.diffs.owners import Ownership
from build_hooks.diffs.reader import parse
from build_hooks.diffs.writer import make

PATH = "vllm/x.py"


def follow(owned: Ownership, after: str, patch: str, amends=()):
    (diff,) = parse(make(PATH, owned.content, after.encode()).encode())
    made, offsets = apply(diff, owned.content)
    result, clashes = owned.apply(diff, offsets, patch, amends)
    assert result.content == made == after.encode()
    return result, clashes


def test_a_line_that_another_patch_put_in_is_not_taken_out():
    owned, clashes = follow(Ownership(b"a\nb\nc\n"), "a\nB\nc\n", "first")
    assert not clashes
    assert owned.owners == [None, "first", None]
    _, (clash,) = follow(owned, "a\nb2\nc\n", "second")
    assert (clash.owner, clash.line, clash.text, clash.taken_out) == ("first", 2, b"B\n", True)


def test_a_line_that_another_patch_took_out_is_not_brought_back():
    owned, _ = follow(Ownership(b"a\nb\nc\n"), "a\nc\n", "first")
    _, (clash,) = follow(owned, "a\nb\nc\n", "second")
    assert (clash.owner, clash.line, clash.text, clash.taken_out) == ("first", 2, b"b\n", False)


def test_a_patch_may_undo_what_it_amends():
    owned, _ = follow(Ownership(b"a\nb\nc\n"), "a\nB\nc\n", "first")
    amended, clashes = follow(owned, "a\nb\nc\n", "second", amends=["first"])
    assert not clashes
    assert amended.owners == [None, "second", None]


def test_a_patch_may_add_between_the_lines_of_another():
    owned, _ = follow(Ownership(b"a\nb\n"), "a\n1\n2\nb\n", "first")
    owned, clashes = follow(owned, "a\n1\nx\n2\nb\n", "second")
    assert not clashes
    assert owned.owners == [None, "first", "second", "first", None]


def test_a_line_that_a_hunk_repeats_keeps_its_owner():
    owned, _ = follow(Ownership(b"a\nb\n"), "a\n1\nb\n", "first")
    diff = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,3 +1,3 @@\n a\n-1\n-b\n+1\n+c\n"
    (parsed,) = parse(diff.encode())
    _, offsets = apply(parsed, owned.content)
    owned, clashes = owned.apply(parsed, offsets, "second")
    assert not clashes
    assert owned.owners == [None, "first", "second"]


def test_a_file_that_a_patch_adds_is_its_own():
    (diff,) = parse(make(PATH, None, b"a\nb\n").encode())
    owned, clashes = Ownership(None).apply(diff, (0,), "first")
    assert not clashes
    assert owned.owners == ["first", "first"]
    _, (clash,) = follow(owned, "a\n", "second")
    assert clash.owner == "first"


def tokens_text(tokens) -> str:
    return "".join(f"line {number}\n" for number, _ in tokens)


def text(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


@given(st.data())
def test_what_is_refused_is_what_a_model_of_tokens_refuses(data):
    # A line is a number; whoever put it in is known by the number, not by any diff.
    numbers = itertools.count()
    lines = [(next(numbers), None) for _ in range(data.draw(st.integers(0, 12), "base"))]
    owned = Ownership(tokens_text(lines).encode())
    for patch in "abcd"[: data.draw(st.integers(1, 4), "patches")]:
        kept, undone = [], set()
        for token in lines:
            action = data.draw(st.sampled_from(["keep"] * 4 + ["drop", "before", "after"]), "edit")
            if action == "before":
                kept.append((next(numbers), patch))
            if action == "drop":
                undone |= {token[1]} - {None}
            else:
                kept.append(token)
            if action == "after":
                kept.append((next(numbers), patch))
        if not lines:
            kept.append((next(numbers), patch))
        if kept == lines:
            continue
        amends = data.draw(st.sets(st.sampled_from("abcd")), "amends")
        result, clashes = follow(owned, tokens_text(kept), patch, amends)
        assert {clash.owner for clash in clashes} == undone - amends
        assert result.owners == [owner for _, owner in kept]
        for clash in clashes:
            assert owned.owners[clash.line - 1] == clash.owner
            assert owned.content.split(b"\n")[clash.line - 1] + b"\n" == clash.text
        if not clashes:
            owned, lines = result, kept


@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=8), st.data())
def test_a_line_that_is_brought_back_is_found_whatever_else_changes(base, data):
    lines = [f"{letter} {index}" for index, letter in enumerate(base)]
    place = data.draw(st.integers(0, len(lines) - 1))
    without = lines[:place] + lines[place + 1 :]
    owned, clashes = follow(Ownership(text(lines).encode()), text([*without, "own"]), "first")
    assert not clashes
    _, clashes = follow(owned, text([*lines, "own", "other"]), "second")
    assert [(c.owner, c.text, c.taken_out) for c in clashes] == [
        ("first", f"{lines[place]}\n".encode(), False)
    ]
