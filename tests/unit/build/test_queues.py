"""Reading the queue: every problem at once, each with its file and field."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks.errors import QueueError
from build_hooks.queues.model import Patch, Upstream
from build_hooks.queues.reader import load
from tests.support import stand_in

SQRT = stand_in.PATCHES["sqrt"]
SERIES = "series.toml"
TOML = "patches/one/patch.toml"


def problems(overlay: Path) -> list[tuple[str, str, str]]:
    with pytest.raises(QueueError) as raised:
        load(overlay)
    for problem in raised.value.problems:
        assert str(problem) in str(raised.value)
    return [(p.file, p.field, p.message) for p in raised.value.problems]


def only(overlay: Path) -> tuple[str, str, str]:
    (problem,) = problems(overlay)
    return problem


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """Give a queue of one patch, to be spoilt."""
    stand_in.write_series(tmp_path, ["one"])
    return stand_in.write_patch(tmp_path, "one", SQRT).parent.parent


def test_load_reads_the_queue(tmp_path: Path) -> None:
    loaded = load(stand_in.write_queue(tmp_path))
    assert [str(release) for release in loaded.releases] == list(stand_in.RELEASES)
    assert loaded.revision == 1
    assert [patch.id for patch in loaded.patches] == ["sqrt", "scale", "head"]
    sqrt, scale, head = loaded.patches
    assert [str(variant.release) for variant in scale.variants] == ["0.25.0", "0.29.0"]
    assert [file.path for file in sqrt.variants[0].files] == [
        "vllm/models.py",
        "vllm/engine/__init__.py",
    ]
    assert scale.switch == "NRL_VLLM_SCALE"
    assert scale.notes == {Version("0.29.0"): "Read the new comment."}
    assert scale.upstream[0].url == "https://github.com/vllm-project/vllm/issues/7"
    assert head.upstream[0].url == "https://github.com/vllm-project/vllm/pull/8"
    assert head.upstream[0].fixed_in == Version("0.29.0")


@pytest.mark.parametrize(
    ("version", "needed", "models"),
    [
        ("0.25.0", True, "0.25.0"),
        ("0.26.0", True, "0.25.0"),
        ("0.28.1.dev7+gabc", True, "0.25.0"),
        ("0.29.0rc1", False, "0.29.0"),
        ("0.29.0", False, "0.29.0"),
        ("0.29.0+cu129", False, "0.29.0"),
        ("0.30.0.dev1", False, "0.29.0"),
    ],
)
def test_a_version_between_releases_takes_the_release_before_it(
    tmp_path: Path, version: str, needed: bool, models: str
) -> None:
    stand_in.write_queue(tmp_path)
    _, scale, head = load(tmp_path).patches
    assert head.needed(Version(version)) == needed
    diff = scale.diff(Version(version))
    assert diff is not None
    assert {path: str(since) for path, since in diff.variants.items()} == {
        "vllm/models.py": models,
        "vllm/scaling.py": "0.25.0",
    }
    assert scale.diff(Version("0.24.0")) is None


def test_a_reason_holds_for_later_versions_too(tmp_path: Path) -> None:
    stand_in.write_queue(tmp_path)
    head = load(tmp_path).patches[2]
    assert head.reason(Version("0.30.0.dev1")) == "Upstream returns a float."
    assert head.reason(Version("0.24.0")) == "outside the range <0.29,>=0.25.0"


def test_references_to_commits() -> None:
    upstream = Upstream("commit", "vllm-project/vllm@0123abc", "", None)
    assert upstream.url == "https://github.com/vllm-project/vllm/commit/0123abc"


# Each field of patch.toml, a wrong value for it, the field named and a part of what is said.
WRONG_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"title": None}, "title", "is missing"),
    ({"title": "two\nlines"}, "title", "must be one line, not"),
    ({"why": ""}, "why", "is empty"),
    ({"risk": "  \n "}, "risk", "is empty"),
    ({"removal": 3}, "removal", "must be a string"),
    ({"why": True}, "why", "must be a string"),
    ({"vllm": None}, "vllm", "is missing"),
    ({"vllm": "0.25"}, "vllm", "'0.25' is not a version range"),
    ({"vllm": ">=0.25,<"}, "vllm", "not a version range"),
    ({"vllm": ">=" + "9" * 5000}, "vllm", "not a version range"),
    ({"switch": "VLLM_FIX"}, "switch", "must be 'always' or an NRL_ variable"),
    ({"switch": "on"}, "switch", "must be 'always'"),
    ({"logic": ""}, "logic", "is empty"),
    ({"module": "vllm_nemo.one"}, "module", "must be a module of vllm_nemo.patches"),
    ({"module": "one"}, "module", "must be a module of vllm_nemo.patches"),
    ({"summary": "x"}, "summary", "is unknown; known are"),
    ({"upstream": "#1"}, "upstream", "must be a list"),
    ({"upstream": ["#1"]}, "upstream[1]", "must be a table"),
    ({"upstream": [{"kind": "pr", "ref": "a/b#1"}]}, "kind", "must be issue, pull or commit"),
    ({"upstream": [{"kind": "pull", "ref": "#1"}]}, "ref", "must be owner/repository#1"),
    ({"upstream": [{"kind": "pull", "ref": "a/b#\u0661"}]}, "ref", "must be owner/repository#1"),
    ({"upstream": [{"ref": "a/b#1"}]}, "kind", "is missing"),
    ({"upstream": [{"kind": "pull", "ref": "a/b#1", "url": "x"}]}, "url", "is unknown"),
    ({"upstream": [{"kind": "pull", "ref": "a/b#1", "fixed-in": "soon"}]}, "fixed-in", "'soon'"),
    ({"upstream": [{"kind": "pull", "ref": "a/b#1", "note": "x\ny"}]}, "note", "be one line"),
    ({"notes": "x"}, "notes", "must be a table"),
    ({"notes": {"0.26": "x"}}, "notes", "'0.26' is not a release such as 0.29.0"),
    ({"notes": {"newest": "x"}}, "notes", "'newest' is not a release"),
    ({"notes": {"0.26.0": " "}}, "notes.0.26.0", "must be a reason, in words"),
    ({"notes": {"0.26.0": 1}}, "notes.0.26.0", "must be a reason, in words"),
    ({"notes": {"0.27.0": "x"}}, "notes", "0.27.0 is not a supported release"),
    ({"not_needed": {"0.27.0": "x"}}, "not-needed", "0.27.0 is not a supported release"),
    ({"not_needed": {"0.26.0": "x"}}, "not-needed", "0.26.0 lies inside the range >=0.25.0"),
    ({"vllm": "<0.29"}, "not-needed", "0.29.0 lies outside the range <0.29: say why"),
    ({"vllm": ">=0.25.0", "not_needed": {"v0.29.0": "x"}}, "not-needed", "is not a release"),
]


@pytest.mark.parametrize(("fields", "field", "message"), WRONG_FIELDS)
def test_a_wrong_field_is_named(
    overlay: Path, fields: dict[str, Any], field: str, message: str
) -> None:
    stand_in.write_patch(overlay, "one", SQRT, **fields)
    file, found, said = only(overlay)
    assert file.startswith(TOML)
    assert found == field
    assert message in said


@pytest.mark.parametrize(
    ("series", "field", "message"),
    [
        ({"releases": None}, "releases", "is missing"),
        ({"releases": "0.29.0"}, "releases", "must be a list of strings"),
        ({"releases": []}, "releases", "names no release"),
        ({"releases": ["0.25.0", 1]}, "releases", "must be a list of strings"),
        ({"releases": ["0.25.0", "0.29"]}, "releases", "'0.29' is not a release"),
        ({"releases": ["0.25.0", "0.29.0rc1"]}, "releases", "'0.29.0rc1' is not a release"),
        ({"releases": ["0.25.0", "9" * 5000]}, "releases", "is not a release"),
        ({"releases": ["0.29.0", "0.25.0"]}, "releases", "ascending order"),
        ({"releases": ["0.25.0", "0.25.0"]}, "releases", "each once"),
        ({"revision": None}, "revision", "is missing"),
        ({"revision": "1"}, "revision", "must be a whole number"),
        ({"revision": 0}, "revision", "must be 1 or more"),
        ({"revision": True}, "revision", "must be a whole number"),
        ({"patches": ["one", "one"]}, "patches", "lists 'one' 2 times"),
        ({"patches": ["one", "two"]}, "patches", "patches/two/ is missing"),
        ({"patches": ["one", "../one"]}, "patches", "'../one' is not an id"),
        ({"patches": ["one", "One"]}, "patches", "'One' is not an id"),
        ({"patches": ["one", "x" * 300]}, "patches", "is not an id"),
        ({"patches": ["one", "\0"]}, "patches", "is not an id"),
        ({"order": []}, "order", "is unknown"),
    ],
)
def test_a_wrong_field_of_the_series_is_named(
    overlay: Path, series: dict[str, Any], field: str, message: str
) -> None:
    table: dict[str, Any] = {"releases": ["0.25.0"], "revision": 1, "patches": ["one"], **series}
    table = {key: value for key, value in table.items() if value is not None}
    stand_in.write(overlay, {SERIES: stand_in.toml(table)})
    file, found, said = only(overlay)
    assert (file, found) == (SERIES, field)
    assert message in said


def test_missing_files_are_named(tmp_path: Path) -> None:
    assert only(tmp_path) == (SERIES, "", "cannot be read: No such file or directory")
    stand_in.write_series(tmp_path, ["one"])
    (tmp_path / "patches" / "one").mkdir(parents=True)
    assert only(tmp_path) == (TOML, "", "cannot be read: No such file or directory")


def test_what_does_not_belong_is_named(overlay: Path) -> None:
    patches = overlay / "patches"
    stand_in.write(patches, {"two/patch.toml": "", "README": "", "one/notes.txt": ""})
    stand_in.write(patches, {"one/0.26.patch": "", "one/v0.26.0.patch": "", "one/x.patch": ""})
    (patches / "one" / "0.29.0.patch").mkdir()
    neither = "is neither patch.toml nor <release>.patch"
    assert sorted(problems(overlay)) == [
        ("patches/README", "", "is not listed in series.toml"),
        ("patches/one/0.26.patch", "", neither),
        ("patches/one/0.29.0.patch", "", "cannot be read: Is a directory"),
        ("patches/one/notes.txt", "", neither),
        ("patches/one/v0.26.0.patch", "", neither),
        ("patches/one/x.patch", "", neither),
        ("patches/two", "", "is not listed in series.toml"),
    ]


def test_a_patch_needs_a_diff(overlay: Path) -> None:
    (overlay / "patches" / "one" / "0.25.0.patch").unlink()
    assert only(overlay) == (TOML, "", "there is no <release>.patch beside it")


def test_every_release_that_needs_the_patch_has_a_variant(overlay: Path) -> None:
    patch = overlay / "patches" / "one"
    (patch / "0.25.0.patch").rename(patch / "0.26.0.patch")
    assert only(overlay) == (TOML, "vllm", "needed for 0.25.0, but no variant serves it")


# Variants of one file each: of which the whole diff of a release is put together.

A, B = "vllm/models.py", "vllm/engine/__init__.py"


def change(path: str, new: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -2,2 +2,2 @@\n-old\n+{new}\n after\n"


def variants(overlay: Path, *texts: tuple[str, str], **fields: Any) -> Path:
    """Replace the patch by one with these variants."""
    for file in (overlay / "patches" / "one").glob("*.patch"):
        file.unlink()
    stand_in.write_patch(overlay, "one", dict(texts), **fields)
    return overlay


def told(patch: Patch, release: str) -> dict[str, str]:
    """Return what the patch makes of each file in a release."""
    diff = patch.diff(Version(release))
    return {f.path: f.hunks[0].new[0].decode().strip() for f in diff.files} if diff else {}


def test_each_file_takes_its_newest_variant(overlay: Path) -> None:
    variants(
        overlay,
        ("0.25.0", change(A, "a1") + change(B, "b1")),
        ("0.26.0", change(B, "b2")),
        ("0.29.0", change(A, "a1 again") + change(B, "b1")),
    )
    (patch,) = load(overlay).patches
    assert told(patch, "0.25.0") == {A: "a1", B: "b1"}
    assert told(patch, "0.26.0") == {A: "a1", B: "b2"}
    assert told(patch, "0.29.0") == {A: "a1 again", B: "b1"}
    diff = patch.diff(Version("0.26.0"))
    assert diff is not None
    # In the order of their paths, whichever variant they are from.
    assert diff.text.decode() == change(B, "b2") + change(A, "a1")
    assert diff.release == Version("0.26.0")
    inherited = patch.inherited(Version("0.26.0"))
    assert inherited is not None
    assert inherited.text.decode() == change(B, "b1") + change(A, "a1")
    assert patch.inherited(Version("0.25.0")) is None


def test_a_file_can_end_and_begin_again(overlay: Path) -> None:
    ends = {B: "0.26.0"}
    texts = [("0.25.0", change(A, "a1") + change(B, "b1"))]
    (patch,) = load(variants(overlay, *texts, ends=ends)).patches
    assert told(patch, "0.25.0") == {A: "a1", B: "b1"}
    assert told(patch, "0.26.0") == told(patch, "0.29.0") == {A: "a1"}
    (patch,) = load(variants(overlay, *texts, ("0.29.0", change(B, "b1")), ends=ends)).patches
    assert told(patch, "0.28.0") == {A: "a1"}
    assert told(patch, "0.29.0") == {A: "a1", B: "b1"}


REPEATS = f"repeats the diff of {B} in 0.25.0.patch"
UNUSED = f"no supported release uses its diff of {B}"


@pytest.mark.parametrize(
    ("second", "fields", "release", "message"),
    [
        (change(B, "b1"), {}, "0.26.0", REPEATS),
        # Expected at other lines, it is the same change.
        (change(B, "b1").replace("-2,2 +2,2", "-9,2 +9,2"), {}, "0.26.0", REPEATS),
        (change(B, "b2"), {}, "0.30.0", UNUSED),
        (
            change(B, "b2"),
            {"vllm": "<0.29", "not_needed": {"0.29.0": "Upstream has it."}},
            "0.29.0",
            UNUSED,
        ),
    ],
)
def test_a_diff_that_says_nothing_is_named(
    overlay: Path, second: str, fields: dict[str, Any], release: str, message: str
) -> None:
    first = change(A, "a1") + change(B, "b1")
    variants(overlay, ("0.25.0", first), (release, second), **fields)
    assert only(overlay) == (f"patches/one/{release}.patch", "", message)


def test_a_variant_between_releases_is_named(overlay: Path) -> None:
    texts = [(release, change(B, f"b{release}")) for release in ("0.25.0", "0.27.0", "0.28.0")]
    assert only(variants(overlay, *texts)) == ("patches/one/0.27.0.patch", "", UNUSED)


@pytest.mark.parametrize(
    ("ends", "field", "message"),
    [
        ({"vllm/other.py": "0.26.0"}, "ends", "no variant before 0.26.0 changes vllm/other.py"),
        ({B: "0.25.0"}, "ends", f"no variant before 0.25.0 changes {B}"),
        ({B: "0.27.0"}, "ends", "0.27.0 is not a supported release"),
        ({B: "0.26"}, f"ends.{B}", "'0.26' is not a release such as 0.29.0"),
        ({B: 1}, f"ends.{B}", "1 is not a release such as 0.29.0"),
        ("0.26.0", "ends", "must be a table"),
        ({A: "0.29.0", B: "0.29.0"}, "vllm", "needed for 0.29.0, but no variant serves it"),
    ],
)
def test_an_end_that_ends_nothing_is_named(
    overlay: Path, ends: object, field: str, message: str
) -> None:
    variants(overlay, ("0.25.0", change(A, "a1") + change(B, "b1")), ends=ends)
    assert only(overlay) == (TOML, field, message)


def test_an_end_where_a_variant_begins_is_named(overlay: Path) -> None:
    texts = [("0.25.0", change(B, "b1")), ("0.26.0", change(B, "b2"))]
    message = f"0.26.0.patch changes {B}, which ends there"
    assert only(variants(overlay, *texts, ends={B: "0.26.0"})) == (TOML, "ends", message)


# Diffs.


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("A patch.\n" + SQRT["0.25.0"], "line 1", "not part of a diff"),
        (SQRT["0.25.0"].replace("vllm/models.py", "../models.py"), "line 1", "'..' component"),
        (SQRT["0.25.0"].replace("vllm/models.py", "/models.py"), "line 1", "not a relative path"),
        (SQRT["0.25.0"].replace("vllm/models.py", "setup.py"), "line 1", "lies outside vllm/"),
        (SQRT["0.25.0"].replace("abs(x))", "abs(x)) "), "line 6", "whitespace damage"),
        (SQRT["0.25.0"].replace("@@ -6,3", "@@ -6,4"), "", "not a unified diff"),
    ],
)
def test_a_wrong_diff_is_named_with_its_line(
    overlay: Path, text: str, field: str, message: str
) -> None:
    stand_in.write_patch(overlay, "one", {"0.25.0": text})
    file, found, said = only(overlay)
    assert (file, found) == ("patches/one/0.25.0.patch", field)
    assert message in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"title = ", "Invalid value (at end of document)"),
        (b"title = 'x'\ntitle = 'y'\n", "Cannot overwrite a value (at line 2, column 12)"),
        (b"\xff", "utf-8"),
        (b"title = " + b"1" * 5000, "not TOML"),
        (b"title = " + b"[" * 5000, "not TOML"),
    ],
)
def test_malformed_toml_is_named(overlay: Path, text: bytes, message: str) -> None:
    for name in (SERIES, TOML):
        (overlay / name).write_bytes(text)
    for name, (file, field, said) in zip((SERIES, TOML), problems(overlay), strict=True):
        assert (file, field) == (name, "")
        assert message in said


@pytest.mark.parametrize("name", [SERIES, TOML, "patches/one/0.25.0.patch"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "cannot be read: it is no regular file"),
        (os.mkfifo, "cannot be read: it is no regular file"),
        (lambda path: path.symlink_to("/nowhere"), "cannot be read: No such file or directory"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
        (lambda path: path.write_bytes(b"#" * (2 << 20)), "2097152 bytes; 1048576 at most"),
    ],
    ids=["device", "pipe", "link to nothing", "link to itself", "huge"],
)
def test_a_file_that_is_no_file_of_a_queue_is_named(
    overlay: Path, make: Callable[[Path], object], message: str, name: str
) -> None:
    (overlay / name).unlink()
    make(overlay / name)
    file, _, said = only(overlay)
    assert file == name
    assert message in said


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    stand_in.write_series(tmp_path, ["one", "two", "three"], ("0.29.0", "0.25.0"))
    stand_in.write_patch(tmp_path, "one", SQRT, title="", vllm="x", extra=1)
    stand_in.write_patch(tmp_path, "two", {"0.25.0": "x"}, switch="x")
    (tmp_path / "patches" / "two" / "patch.toml").write_text("=")
    assert {(file, field) for file, field, _ in problems(tmp_path)} == {
        (SERIES, "releases"),
        (SERIES, "patches"),
        (TOML, "title"),
        (TOML, "vllm"),
        (TOML, "extra"),
        ("patches/two/patch.toml", ""),
        ("patches/two/0.25.0.patch", "line 1"),
    }


# Whatever stands in the files, the answer is a queue or a QueueError.

VALUE = st.recursive(
    st.text(max_size=8) | st.integers() | st.booleans() | st.floats(allow_nan=False),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3),
    max_leaves=5,
)  # fmt: skip
FIELDS = "title why risk removal vllm switch module logic upstream ends not-needed notes"
GOOD = {
    SERIES: b'releases = ["0.25.0"]\nrevision = 1\npatches = ["one"]\n',
    TOML: b'title="t"\nwhy="w"\nrisk="r"\nremoval="r"\nvllm=">=0.25"\nswitch="always"\n',
    "patches/one/0.25.0.patch": SQRT["0.25.0"].encode(),
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("queue")


def load_or_refuse(scratch: Path, name: str, data: bytes) -> None:
    stand_in.write(scratch, {**GOOD, name: data})
    with contextlib.suppress(QueueError):
        load(scratch)


@given(st.sampled_from(sorted(GOOD)), st.booleans(), st.binary())
def test_any_bytes_in_a_file(scratch: Path, name: str, after: bool, data: bytes) -> None:
    load_or_refuse(scratch, name, GOOD[name] + data if after else data)


@given(st.sampled_from(FIELDS.split()), VALUE)
def test_any_value_in_a_field(scratch: Path, field: str, value: object) -> None:
    table = {"title": "t", "why": "w", "risk": "r", "removal": "r", "vllm": ">=0.25"}
    table |= {"switch": "always", field: value}
    simple = not (isinstance(value, dict) or (isinstance(value, list) and value))
    data = stand_in.toml(table) if simple else stand_in.toml({**table, field: _flat(value)})
    load_or_refuse(scratch, TOML, data.encode())


def _flat(value: Any) -> Any:
    """Keep to what the little writer can write: tables and lists of plain values."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if not isinstance(v, dict | list)}
    return [v for v in value if not isinstance(v, dict | list)]
