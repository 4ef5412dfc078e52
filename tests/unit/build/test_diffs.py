"""Reading, applying and writing diffs."""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from build_hooks.diffs.applier import Misfit, MisfitError, apply
from build_hooks.diffs.model import MAXIMUM_BYTES, DiffError, FileDiff, Hunk, split
from build_hooks.diffs.reader import parse
from build_hooks.diffs.writer import make

PATH = "vllm/models.py"
HEAD = f"--- a/{PATH}\n+++ b/{PATH}\n"
HUNK = "@@ -2,3 +2,4 @@\n two\n+added\n three\n four\n"
STOCK = b"one\ntwo\nthree\nfour\nfive\n"


def parse_one(text: str) -> FileDiff:
    (file,) = parse(text.encode())
    return file


def misfits(text: str, content: bytes | None) -> list[Misfit]:
    with pytest.raises(MisfitError) as raised:
        apply(parse_one(text), content)
    return list(raised.value.misfits)


# Reading.


def test_parse_reads_paths_lines_and_starts() -> None:
    first, second = parse((HEAD + HUNK + "--- /dev/null\n+++ b/vllm/new.py\n" + NEW).encode())
    assert first == FileDiff(
        PATH,
        added=False,
        hunks=(
            Hunk(
                2, (b"two\n", b"three\n", b"four\n"), (b"two\n", b"added\n", b"three\n", b"four\n")
            ),
        ),
    )
    assert second == FileDiff(
        "vllm/new.py", added=True, hunks=(Hunk(1, (), (b"new\n",), ends_file=True),)
    )


NEW = "@@ -0,0 +1,1 @@\n+new\n"

REFUSED = {
    "empty": ("", 1, "no line end"),
    "no file": ("\n", 1, "not part of a diff"),
    "prose": (f"A patch.\n{HEAD}{HUNK}", 1, "not part of a diff"),
    "git header": (f"diff --git a/{PATH} b/{PATH}\n{HEAD}{HUNK}", 1, "not part of a diff"),
    "trailing prose": (f"{HEAD}{HUNK}-- \n2.39.5\n", 9, "not part of a diff"),
    "timestamp": (f"--- a/{PATH}\t2026-10-01\n+++ b/{PATH}\n{HUNK}", 1, "timestamp"),
    "carriage returns": ((HEAD + HUNK).replace("\n", "\r\n"), 1, "carriage return"),
    "NUL": (HEAD + HUNK.replace("added", "ad\0ded"), 5, "NUL"),
    "not UTF-8": (HEAD + HUNK.replace("added", "\udcff"), 5, "not UTF-8"),
    "no line end": ((HEAD + HUNK)[:-1], 7, "no line end"),
    "text after the header": (HEAD + HUNK.replace("@@\n", "@@ class A:\n"), 3, "hunk header"),
    "malformed header": (HEAD + HUNK.replace("-2,3", "-2;3"), 3, "hunk header"),
    "header in other digits": (HEAD + HUNK.replace("-2,3", "-٢,٣"), 3, "hunk header"),
    "header of too many digits": (HEAD + HUNK.replace("-2,", f"-{'9' * 5000},"), 3, "hunk header"),
    "empty context line": (HEAD + HUNK.replace(" three", ""), 6, "empty context line"),
    "white space at an added line's end": (HEAD + HUNK.replace("added", "added "), 5, "ends in"),
    "tab indent": (HEAD + HUNK.replace("added", "\tadded"), 5, "indented with a tab"),
    "space before a tab": (HEAD + HUNK.replace("added", "  \tadded"), 5, "indented with a tab"),
    "other line": (HEAD + HUNK.replace("+added", "*added"), 5, "not part of a diff"),
    "other marker": (HEAD + HUNK + "\\ No newline\n", 8, "not part of a diff"),
    "leading marker": (
        HEAD + HUNK.replace("@@\n", "@@\n\\ No newline at end of file\n"), 3, "belongs after"
    ),
    "marker inside": (
        HEAD + HUNK.replace("+added\n", "+a\n\\ No newline at end of file\n"), 3, "only the last"
    ),
    "hunk too short": (HEAD + HUNK.replace("-2,3", "-2,4"), 0, "shorter than expected"),
    "hunk too long": (HEAD + HUNK.replace("-2,3", "-2,2"), 0, "longer than expected"),
    "line after the hunk": (HEAD + HUNK + " five\n", 0, "belong to no hunk"),
    "hunk without a file": (HUNK, 0, "not a unified diff"),
    "lone source": (f"--- a/{PATH}\n", 0, "no file is changed"),
    "lone target": (f"+++ b/{PATH}\n{HUNK}", 0, "not a unified diff"),
    "no hunk": (HEAD, 3, "has no hunk"),
    "nothing changed": (HEAD + "@@ -1,1 +1,1 @@\n one\n", 3, "changes nothing"),
    "no old text": (HEAD + "@@ -1,0 +2,1 @@\n+added\n", 3, "no old text"),
    "same file twice": ((HEAD + HUNK) * 2, 0, "occurs 2 times"),
    "deletion": (f"--- a/{PATH}\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-one\n", 1, "deletes a file"),
    "rename": ((HEAD + HUNK).replace("b/vllm/models", "b/vllm/other"), 1, "renames"),
    "no prefix": ((HEAD + HUNK).replace("a/vllm", "vllm"), 1, "paths are a/vllm/"),
    "new file with old lines": (
        "--- /dev/null\n+++ b/vllm/new.py\n@@ -1,1 +1,2 @@\n one\n+two\n", 3, "cannot have old"
    ),
    "new file in two hunks": (f"--- /dev/null\n+++ b/vllm/new.py\n{NEW}{NEW}", 7, "has one hunk"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), REFUSED.values(), ids=REFUSED)
def test_parse_refuses_and_names_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DiffError) as raised:
        parse(text.encode(errors="surrogateescape"))
    assert any(at == line and message in said for at, said in raised.value.faults), raised.value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("setup.py", "outside vllm/"),
        ("vllm_nemo/models.py", "outside vllm/"),
        ("vllm/../setup.py", "component"),
        ("vllm/./models.py", "component"),
        ("vllm//models.py", "component"),
        ("/vllm/models.py", "relative path"),
        ("/etc/passwd.py", "relative path"),
        ("C:/vllm/models.py", "relative path"),
        ("vllm\\models.py", "relative path"),
        ("vllm/models.pyi", "not a Python module"),
        ("vllm", "not a Python module"),
        ("vllm/my-models.py", "identifier"),
    ],
)
@pytest.mark.parametrize("source", ["a/{}", "/dev/null"])
def test_parse_refuses_a_path_that_is_no_module_of_vllm(
    path: str, message: str, source: str
) -> None:
    text = f"--- {source.format(path)}\n+++ b/{path}\n{NEW}"
    with pytest.raises(DiffError, match=message):
        parse(text.encode())


def test_parse_tells_all_faults_at_once() -> None:
    text = HEAD + HUNK.replace("added", "added ").replace(" four", "\tfour")
    with pytest.raises(DiffError) as raised:
        parse(text.encode())
    assert [line for line, _ in raised.value.faults] == [5, 7]


def test_parse_refuses_a_diff_too_large_to_be_a_hook() -> None:
    with pytest.raises(DiffError, match="at most"):
        parse(b"x" * (MAXIMUM_BYTES + 1))


@given(st.data())
def test_parse_of_a_damaged_diff_is_a_diff_or_refused(data: st.DataObject) -> None:
    whole = (HEAD + HUNK + "@@ -9,2 +10,1 @@\n-nine\n ten\n").encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    until = data.draw(st.integers(at, len(whole)))
    damage = data.draw(
        st.binary(max_size=3)
        | st.sampled_from([b"\n", b"@@", b"\\ ", b"--- a/x\n", b"+++ b/vllm/"])
    )
    try:
        files = parse(whole[:at] + damage + whole[until:])
    except DiffError:
        return
    assert all(file.path.startswith("vllm/") and file.hunks for file in files)


# Put together from what has a meaning somewhere in a diff.
NAME = st.lists(
    st.sampled_from(
        ["vllm", "vllm_nemo", "..", ".", "", "/", "\\", "C:", "a", "A.py", "x.py", "\0", "é", "\t"]
    ),
    max_size=5,
).map("/".join)
NUMBER = st.sampled_from(["0", "1", "2", "3", "9", "9999999", "99999999", "-1", "²", ""])
BODY = st.sampled_from([" one", "-one", "+two", " ", "+", "-", "\\ No newline at end of file"])
ANY_LINE = st.one_of(
    st.builds("--- {}{}".format, st.sampled_from(["a/", "", "/dev/null"]), NAME),
    st.builds("+++ {}{}".format, st.sampled_from(["b/", "", "/dev/null"]), NAME),
    st.builds("@@ -{},{} +{},{} @@".format, NUMBER, NUMBER, NUMBER, NUMBER),
    BODY,
    st.sampled_from(["diff --git a/x b/x", "new file mode 120000", "rename to vllm/x.py", "\r"]),
)
CONTENT = st.lists(st.sampled_from([b"one\n", b"two\n", b"\n", b"\r\n"]), max_size=6).map(b"".join)


@given(
    st.sampled_from([[], ["--- a/vllm/x.py", "+++ b/vllm/x.py"]]),
    st.lists(ANY_LINE, max_size=12),
    CONTENT,
)
def test_a_diff_stays_within_vllm_and_fits_or_not(
    head: list[str], lines: list[str], content: bytes
) -> None:
    text = "".join(f"{line}\n" for line in [*head, *lines]).encode()
    with contextlib.suppress(DiffError, MisfitError):
        files = parse(text)
        assert b"".join(file.text for file in files) == text
        for file in files:
            parts = PurePosixPath(file.path).parts
            assert parts[0] == "vllm"
            assert all(part.removesuffix(".py").isidentifier() for part in parts)
            made, offsets = apply(file, None if file.added else content)
            assert len(offsets) == len(file.hunks)
            # Whatever applies can be told again, and that brings the same.
            again = make(file.path, None if file.added else content, made)
            (retold,) = parse(again.encode())
            assert apply(retold, None if file.added else content)[0] == made


# Applying.


def test_apply_finds_the_one_place_and_tells_the_offset() -> None:
    file = parse_one(HEAD + HUNK)
    assert apply(file, STOCK) == (b"one\ntwo\nadded\nthree\nfour\nfive\n", (0,))
    assert apply(file, b"zero\n" * 9 + STOCK)[1] == (9,)
    assert apply(file, STOCK.removeprefix(b"one\n"))[1] == (-1,)


def test_apply_refuses_a_missing_place_and_shows_the_nearest() -> None:
    (misfit,) = misfits(HEAD + HUNK, b"zero\n" + STOCK.replace(b"three", b"3"))
    assert (misfit.hunk, misfit.message) == (1, "not found; nearest is line 3")
    assert misfit.detail.splitlines() == [
        "--- expected by the patch",
        "+++ base, line 3",
        " two",
        "-three",
        "+3",
        " four",
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"three  \n", "+three \\x20"),
        (b"three\t\n", "+three\\t"),
        (b"three\r\n", "+three\\r"),
        (b"th\x0cree\n", "+th\\x0cree"),
        (b"th\xffree\n", "+th\\xffree"),
    ],
)
def test_apply_shows_differences_that_no_eye_can_see(line: bytes, shown: str) -> None:
    (misfit,) = misfits(HEAD + HUNK, STOCK.replace(b"three\n", line))
    assert shown in misfit.detail.splitlines()


def test_apply_shows_a_missing_line_end() -> None:
    (misfit,) = misfits(HEAD + HUNK, b"one\ntwo\nthree\nfour")
    assert "+four\\ no line end" in misfit.detail.splitlines()


def test_apply_of_an_empty_or_short_file_is_refused() -> None:
    for content in (b"", b"two\n", b"four\n"):
        (misfit,) = misfits(HEAD + HUNK, content)
        assert "not found" in misfit.message


def test_apply_refuses_an_ambiguous_place_wherever_the_hunk_points() -> None:
    (misfit,) = misfits(HEAD + HUNK, STOCK * 2)
    assert misfit.message == "ambiguous: its old text occurs at lines 2, 7"


def test_apply_takes_the_other_place_when_an_earlier_hunk_is_near() -> None:
    """A place is the only one in the file, or it is none: what hunks before it do is no help."""
    (misfit,) = misfits(
        HEAD + "@@ -1,2 +1,2 @@\n-a\n+A\n b\n@@ -3,2 +3,2 @@\n-c\n+C\n d\n", b"a\nb\nc\nd\nc\nd\n"
    )
    assert (misfit.hunk, misfit.message) == (2, "ambiguous: its old text occurs at lines 3, 5")


def test_apply_refuses_hunks_out_of_order() -> None:
    text = HEAD + "@@ -4,1 +4,2 @@\n+added\n four\n@@ -5,1 +6,2 @@\n+added\n two\n"
    (misfit,) = misfits(text, STOCK)
    assert (misfit.hunk, misfit.message) == (
        2,
        "out of order: found at line 2, the one before ends at 4",
    )


def test_apply_refuses_hunks_that_overlap() -> None:
    text = HEAD + "@@ -2,2 +2,3 @@\n two\n+added\n three\n@@ -3,2 +4,3 @@\n three\n+added\n four\n"
    (misfit,) = misfits(text, STOCK)
    assert "out of order" in misfit.message


def test_apply_tells_every_misfit_of_a_file() -> None:
    text = HEAD + "@@ -2,1 +2,2 @@\n+added\n 2\n@@ -3,1 +4,2 @@\n+added\n 3\n"
    assert [misfit.hunk for misfit in misfits(text, STOCK)] == [1, 2]


def test_apply_compares_whole_lines() -> None:
    text = HEAD + "@@ -2,1 +2,2 @@\n+added\n two\n"
    for content in (b"one\ntwo \n", b"one\n two\n", b"one\ntwo\r\n", b"one\ntwo", b"one\nTwo\n"):
        (misfit,) = misfits(text, content)
        assert "not found" in misfit.message


def test_a_hunk_at_line_1_begins_the_file() -> None:
    text = HEAD + "@@ -1,1 +1,2 @@\n+added\n one\n"
    assert apply(parse_one(text), STOCK)[0] == b"added\n" + STOCK
    (misfit,) = misfits(text, b"zero\n" + STOCK)
    assert misfit.message == "must begin the file (it starts at line 1), but is at line 2"


def test_a_hunk_without_trailing_context_ends_the_file() -> None:
    text = HEAD + "@@ -5,1 +5,2 @@\n five\n+added\n"
    assert apply(parse_one(text), STOCK)[0] == STOCK + b"added\n"
    (misfit,) = misfits(text, STOCK + b"six\n")
    assert "must end the file" in misfit.message
    assert "ends at line 5 of 6" in misfit.message


def test_an_empty_file_can_be_filled() -> None:
    file = parse_one(HEAD + NEW)
    assert apply(file, b"") == (b"new\n", (0,))
    (misfit,) = misfits(HEAD + NEW, STOCK)
    assert "not found" in misfit.message


def test_a_new_file_must_be_new_and_any_other_must_be_there() -> None:
    text = f"--- /dev/null\n+++ b/{PATH}\n{NEW}"
    assert apply(parse_one(text), None) == (b"new\n", (0,))
    (there,) = misfits(text, b"new\n")
    (missing,) = misfits(HEAD + HUNK, None)
    assert (there.hunk, there.message) == (0, "the patch adds this file, but it is there already")
    assert (missing.hunk, missing.message) == (0, "the base has no such file")


MARKER = "\\ No newline at end of file\n"


@pytest.mark.parametrize(
    ("hunk", "before", "after"),
    [
        (f"@@ -1,2 +1,2 @@\n-a\n+A\n b\n{MARKER}", b"a\nb", b"A\nb"),
        (f"@@ -1,2 +1,2 @@\n a\n-b\n{MARKER}+b\n", b"a\nb", b"a\nb\n"),
        (f"@@ -1,2 +1,2 @@\n a\n-b\n+b\n{MARKER}", b"a\nb\n", b"a\nb"),
        (f"@@ -1,2 +1,2 @@\n a\n-b\n{MARKER}+c\n{MARKER}", b"a\nb", b"a\nc"),
    ],
)
def test_a_missing_line_end_is_part_of_the_line(hunk: str, before: bytes, after: bytes) -> None:
    assert apply(parse_one(HEAD + hunk), before)[0] == after
    with pytest.raises(MisfitError):
        apply(parse_one(HEAD + hunk), before + b"c\n")


LINE = st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"\r") + b"\n")


@given(st.lists(LINE), st.lists(LINE), st.binary(max_size=4))
def test_all_outside_the_hunks_stays_byte_for_byte(
    above: list[bytes], below: list[bytes], rest: bytes
) -> None:
    r"""No decoding, no line ends but ``\n``: form feeds, CRLF, any byte."""
    head, tail = b"".join(above), b"".join(below) + rest
    text = HEAD + "@@ -2,2 +2,3 @@\n before it\n+added\n after it\n"
    assert apply(parse_one(text), head + b"before it\nafter it\n" + tail) == (
        head + b"before it\nadded\nafter it\n" + tail,
        (len(above) - 1,),
    )


@pytest.mark.parametrize(
    ("header", "body", "same"),
    [
        ("@@ -9,3 +9,4 @@", HUNK, True),
        ("@@ -1,3 +1,4 @@", HUNK, False),
        ("@@ -2,3 +2,4 @@", HUNK.replace("+added", "+other"), False),
        ("@@ -2,3 +2,3 @@", HUNK.replace(" two", "-two"), False),
        ("@@ -2,2 +2,3 @@", HUNK.replace(" four\n", ""), False),
        ("@@ -2,3 +2,4 @@", HUNK + HUNK, False),
    ],
)
def test_a_change_is_the_same_wherever_but_at_the_files_begin_or_end(
    header: str, body: str, same: bool
) -> None:
    other = parse_one(HEAD + header + body.removeprefix("@@ -2,3 +2,4 @@"))
    assert parse_one(HEAD + HUNK).same_change(other) is same
    assert other.same_change(parse_one(HEAD + HUNK)) is same


# Writing.

# Few different lines, so that most contexts are ambiguous at first.
TEXT_LINE = st.sampled_from(["a", "b", "", "    c", "é\x0cd", "-- e", "++ f", "@@ g"]).map(
    lambda line: line + "\n"
)
TEXT = st.builds(
    lambda lines, rest: ("".join(lines) + rest).encode(),
    st.lists(TEXT_LINE, max_size=12),
    st.sampled_from(["", "", "end"]),
)


@given(TEXT, TEXT)
def test_what_make_writes_applies_and_reverses(before: bytes, after: bytes) -> None:
    assume(before != after)
    text = make(PATH, before, after)
    file = parse_one(text)
    assert apply(file, before) == (after, (0,) * len(file.hunks))


def times(lines: list[bytes], wanted: list[bytes]) -> int:
    ends = range(len(wanted), len(lines) + 1)
    return sum(lines[end - len(wanted) : end] == wanted for end in ends)


@given(TEXT, TEXT)
def test_the_reverse_takes_back(before: bytes, after: bytes) -> None:
    """Unless it is ambiguous in the new text: least context is chosen for the old one."""
    assume(before != after)
    file = parse_one(make(PATH, before, after))
    with contextlib.ExitStack() as stack:
        lines = split(after)
        if any(times(lines, list(hunk.new)) > 1 for hunk in file.hunks):
            stack.enter_context(pytest.raises(MisfitError, match="ambiguous"))
        assert apply(file.reversed(), after)[0] == before


@given(st.data(), TEXT, TEXT)
def test_a_changed_old_line_is_always_refused(
    data: st.DataObject, before: bytes, after: bytes
) -> None:
    assume(before != after)
    file = parse_one(make(PATH, before, after))
    lines = split(before)
    number = data.draw(st.sampled_from(range(len(file.hunks))))
    hunk = file.hunks[number]
    assume(hunk.old)
    at = hunk.start - 1 + data.draw(st.sampled_from(range(len(hunk.old))))
    lines[at] = data.draw(
        st.sampled_from([b"new " + lines[at], b" " + lines[at], lines[at].rstrip(b"\n") + b"\r\n"])
    )
    content = b"".join(lines)
    with pytest.raises(MisfitError) as raised:
        apply(file, content)
    assert number + 1 in [misfit.hunk for misfit in raised.value.misfits]


@given(TEXT)
def test_make_writes_a_new_file(content: bytes) -> None:
    assume(content)
    file = parse_one(make(PATH, None, content))
    assert file.added
    assert apply(file, None)[0] == content


def test_make_of_no_change_is_empty() -> None:
    assert make(PATH, STOCK, STOCK) == ""


def test_make_takes_the_least_context_that_is_unique() -> None:
    before = b"def f():\n    x = 1\n    return x\n\ndef g():\n    x = 1\n    return x\n\nend\n"
    after = before.replace(b"    x = 1\n    return x\n\nend", b"    x = 2\n    return x\n\nend")
    assert make(PATH, before, after) == (
        HEAD + "@@ -5,3 +5,3 @@\n def g():\n-    x = 1\n+    x = 2\n     return x\n"
    )


def test_make_needs_one_line_on_each_side_where_that_is_enough() -> None:
    after = STOCK.replace(b"three\n", b"3\n")
    assert make(PATH, STOCK, after) == HEAD + "@@ -2,3 +2,3 @@\n two\n-three\n+3\n four\n"


@pytest.mark.parametrize("line", [b"added \n", b"\tadded\n", b"added\r\n", b"add\0ed\n", b"\xff\n"])
def test_make_refuses_what_parse_would_refuse(line: bytes) -> None:
    with pytest.raises(DiffError):
        make(PATH, STOCK, STOCK + line)
