"""The queue on a base: all or nothing, and every conflict told."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from build_hooks.assembly.assemble import Overlay, assemble
from build_hooks.bases.directory import DirectoryBase, from_directory
from build_hooks.errors import BuildError, Conflict, ConflictError
from build_hooks.queues.stack import stack
from tests.support import stand_in


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    return tmp_path / "overlay"


def small_base(tmp_path: Path, release: str = "0.25.0", **changes: str) -> DirectoryBase:
    """Give the stand-in as a directory, with some modules changed or added."""
    files = stand_in.sources(release, **changes)
    return from_directory(stand_in.write(tmp_path / f"vllm-{release}", files))


def build(overlay: Path, on: DirectoryBase, *present: str) -> Overlay:
    return assemble(stack(overlay), on, present=present)


def conflicts(overlay: Path, on: DirectoryBase, *present: str) -> tuple[Conflict, ...]:
    with pytest.raises(ConflictError) as raised:
        build(overlay, on, *present)
    for conflict in raised.value.conflicts:
        assert str(conflict) in str(raised.value)
    return raised.value.conflicts


def plain(overlay: Path, **diffs: str) -> Path:
    """Write a queue of plain patches for 0.25.0."""
    stand_in.write_series(overlay, list(diffs), ("0.25.0",))
    for name, text in diffs.items():
        stand_in.write_patch(overlay, name, {"0.25.0": text})
    return overlay


def edit(old: str, new: str, path: str = "vllm/engine/__init__.py") -> str:
    """Write a diff of two lines: one that changes, one that follows it."""
    changed, after = old.split("|")
    return (
        f"--- a/{path}\n+++ b/{path}\n@@ -4,2 +4,2 @@\n-{changed}\n"
        + "".join(f"+{line}\n" for line in new.split("|"))
        + f" {after}\n"
    ).replace("+4,2", f"+4,{len(new.split('|')) + 1}")


def added(name: str, text: str) -> str:
    return f"--- /dev/null\n+++ b/vllm/{name}.py\n@@ -0,0 +1,1 @@\n+{text}\n"


RUN = "def run(x):|    return Model().forward(x)"


def test_every_patch_gets_its_outcome(tmp_path: Path, overlay: Path) -> None:
    stand_in.write_queue(overlay)
    made = build(overlay, small_base(tmp_path, "0.26.0"))
    assert [(o.patch.id, o.outcome) for o in made.outcomes] == [
        ("sqrt", "applied"),
        ("scale", "applied"),
        ("head", "applied"),
    ]
    assert made.outcomes[0].offsets == {"vllm/models.py": (4,), "vllm/engine/__init__.py": (0,)}
    made = build(overlay, small_base(tmp_path, "0.29.0"))
    assert [(o.outcome, o.reason, o.note) for o in made.outcomes] == [
        ("applied", "", ""),
        ("applied", "", "Read the new comment."),
        ("not-needed", "Upstream returns a float.", ""),
    ]
    assert [
        {path: str(since) for path, since in o.diff.variants.items()} if o.diff else None
        for o in made.outcomes
    ] == [
        {"vllm/engine/__init__.py": "0.25.0", "vllm/models.py": "0.25.0"},
        {"vllm/models.py": "0.29.0", "vllm/scaling.py": "0.25.0"},
        None,
    ]


def test_modules_carry_stock_served_and_patches(tmp_path: Path, overlay: Path) -> None:
    on = small_base(tmp_path)
    engine, models, scaling = build(stand_in.write_queue(overlay), on).modules
    assert (engine.name, engine.is_package, engine.patches) == ("vllm.engine", True, ("sqrt",))
    assert (models.name, models.is_package) == ("vllm.models", False)
    assert models.patches == ("sqrt", "scale", "head")
    assert models.stock == on.read("vllm/models.py")
    assert (scaling.name, scaling.stock, scaling.patches) == ("vllm.scaling", None, ("scale",))
    assert scaling.served.startswith(b"FACTOR = 3\n")
    namespace: dict[str, object] = {}
    exec(compile(models.served, "models", "exec"), namespace)  # noqa: S102
    assert namespace["Model"]().forward(-4) == 2.0  # type: ignore[operator]
    assert type(namespace["Head"]().forward(1)) is float  # type: ignore[operator]


def test_the_notice_stands_at_the_end_and_moves_no_line(tmp_path: Path, overlay: Path) -> None:
    models = build(stand_in.write_queue(overlay), small_base(tmp_path)).modules[1]
    body, notice = models.served.split(b"\n# Changed by vllm-nemo")
    assert b"".join(b"#   %s\n" % patch.encode() for patch in models.patches) in notice
    assert b"vllm-nemo" not in body
    # The stock text with each patch's lines, and nothing before, between or after them.
    assert body.decode() == (
        stand_in.sources("0.25.0")["vllm/models.py"]
        .replace("math.sqrt(x)", "math.sqrt(abs(x))")
        .replace("return 2 * x", "from vllm.scaling import FACTOR\n\n        return FACTOR * x")
        .replace("return x\n", "return float(x)\n")
    )


def test_the_notice_follows_a_file_without_a_line_end(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=edit("a = 1|b = 2", "a = 3", "vllm/odd.py"))
    (module,) = build(overlay, small_base(tmp_path, odd="a = 1\nb = 2\nc = 3")).modules
    assert module.served.startswith(b"a = 3\nb = 2\nc = 3\n\n# Changed by")


def test_all_conflicts_are_told_and_the_message_says_where_and_what_to_run(
    tmp_path: Path, overlay: Path
) -> None:
    on = small_base(tmp_path, models="class Model:\n    pass\n")
    stand_in.write_queue(overlay)
    assert [(c.patch, c.variant, c.file, c.hunk) for c in conflicts(overlay, on)] == [
        ("sqrt", "0.25.0", "vllm/models.py", 1),
        ("scale", "0.25.0", "vllm/models.py", 1),
        ("head", "0.25.0", "vllm/models.py", 1),
    ]
    with pytest.raises(ConflictError) as raised:
        build(overlay, on)
    text = str(raised.value)
    assert text.startswith(f"3 conflicts with vLLM 0.25.0 ({on.origin}); nothing was built:\n")
    assert "  sqrt (0.25.0.patch): vllm/models.py, hunk 1: not found; nearest is line 2\n" in text
    assert "-        return math.sqrt(x)\n" in text
    # From the nearest release that the patches apply to.
    assert text.endswith(
        "To carry sqrt, scale, head over to this base, run: "
        f"python -m build_hooks port 0.26.0 {on.origin}"
    )


def test_a_conflict_names_the_variant_that_the_files_diff_is_from(
    tmp_path: Path, overlay: Path
) -> None:
    stand_in.write_queue(overlay)
    on = small_base(tmp_path, "0.29.0", scaling="FACTOR = 2\n", models="pass\n")
    found = {c.file: c.variant for c in conflicts(overlay, on) if c.patch == "scale"}
    assert found == {"vllm/models.py": "0.29.0", "vllm/scaling.py": "0.25.0"}
    # So does one about what the diffs make of the file.
    broken = stand_in.PATCHES["scale"] | {
        "0.25.0": stand_in.PATCHES["scale"]["0.25.0"].replace("FACTOR = 3", "FACTOR =")
    }
    stand_in.write_patch(overlay, "scale", broken, **stand_in.FIELDS["scale"])
    (conflict,) = conflicts(overlay, small_base(tmp_path / "stock", "0.29.0"))
    assert (conflict.file, conflict.variant) == ("vllm/scaling.py", "0.25.0")


def test_a_patch_applies_whole_or_not_at_all(tmp_path: Path, overlay: Path) -> None:
    """A patch that fails in its second file leaves its first as it was for those after it."""
    half = edit(RUN, "def run(x, y):") + edit("no such line|at all", "x", "vllm/models.py")
    plain(overlay, half=half, whole=edit(RUN, "def run(x, z):"))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert (conflict.patch, conflict.file) == ("half", "vllm/models.py")


def test_two_patches_that_conflict_are_both_named(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, first=edit(RUN, "def run(y):"), second=edit(RUN, "def run(z):"))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert conflict.patch == "second"
    assert conflict.message.startswith("conflicts with first, which comes before it: not found")


def test_a_place_that_an_earlier_patch_made_ambiguous_is_blamed_on_it(
    tmp_path: Path, overlay: Path
) -> None:
    twice = "def run(x):|    return Model().forward(x)||def run(x):"
    plain(overlay, first=edit(RUN, twice), second=edit(RUN, "def run(z):"))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert conflict.message == (
        "conflicts with first, which comes before it: ambiguous: its old text occurs at lines 4, 7"
    )


def test_two_patches_that_add_one_file_are_both_named(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, first=added("new", "A = 1"), second=added("new", "A = 2"))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert conflict.message == (
        "conflicts with first, which comes before it: the patch adds this file, but it is there "
        "already"
    )


def test_the_same_change_twice_is_told_as_such(tmp_path: Path, overlay: Path) -> None:
    for text in (edit(RUN, "def run(y):"), added("new", "A = 1")):
        plain(overlay, first=text, second=text)
        (conflict,) = conflicts(overlay, small_base(tmp_path))
        assert (conflict.patch, conflict.message) == (
            "second",
            "an earlier patch has brought this change",
        )


def test_later_patches_see_what_earlier_ones_made(tmp_path: Path, overlay: Path) -> None:
    plain(
        overlay,
        first=edit(RUN, "def run(y):"),
        second=edit(RUN.replace("run(x)", "run(y)"), "def run(z):"),
        third=added("new", "A = 1"),
        fourth="--- a/vllm/new.py\n+++ b/vllm/new.py\n@@ -1,1 +1,2 @@\n A = 1\n+B = 2\n",
    )
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert (conflict.patch, conflict.other) == ("second", "first")
    assert conflict.message == (
        "undoes first: it takes out line 4, which first put in: 'def run(y):'. If that is meant, "
        'write `amends = ["first"]` into its patch.toml.'
    )
    second = {"0.25.0": edit(RUN.replace("run(x)", "run(y)"), "def run(z):")}
    stand_in.write_patch(overlay, "second", second, amends=["first"])
    engine, new = build(overlay, small_base(tmp_path)).modules
    assert b"def run(z):" in engine.served
    assert engine.patches == ("first", "second")
    assert new.served.startswith(b"A = 1\nB = 2\n")
    assert (new.stock, new.patches) == (None, ("third", "fourth"))


def test_what_the_base_has_already_is_an_error(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=edit(RUN, "def run(y):"), two=added("new", "A = 1"))
    engine = stand_in.sources("0.25.0")["vllm/engine/__init__.py"].replace("run(x)", "run(y)", 1)
    on = small_base(tmp_path, new="A = 1\n", **{"engine/__init__": engine})
    for conflict in conflicts(overlay, on):
        assert conflict.message.startswith("the base has this change already.")
        assert "narrow `vllm`" in conflict.message
        assert "NRL_VLLM_PRESENT" in conflict.message


def test_a_patch_that_is_half_there_is_an_error(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=edit(RUN, "def run(y):") + added("new", "A = 1"))
    (conflict,) = conflicts(overlay, small_base(tmp_path, new="A = 1\n"))
    assert conflict.file == "vllm/new.py"
    assert conflict.message.startswith("the base has this change already.")


def test_a_missing_file_is_named(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=edit("a = 1|b = 2", "a = 3", "vllm/gone.py"))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert str(conflict) == "one (0.25.0.patch): vllm/gone.py: the base has no such file"


def test_a_base_older_than_any_variant_is_named(tmp_path: Path, overlay: Path) -> None:
    stand_in.write_series(overlay, ["one"], ("0.26.0",))
    stand_in.write_patch(overlay, "one", {"0.26.0": edit(RUN, "def run(y):")})
    (conflict,) = conflicts(overlay, small_base(tmp_path, "0.25.0"))
    assert "no variant for vLLM 0.25.0; the oldest is for 0.26.0" in str(conflict)


@pytest.mark.parametrize("line", ["def run(x:", "return 1", "x = '\\N{no such name}'", "x = 0777"])
def test_a_result_that_does_not_compile_is_a_conflict(
    tmp_path: Path, overlay: Path, line: str
) -> None:
    plain(overlay, one=added("other", "A = 1"), two=added("new", line))
    (conflict,) = conflicts(overlay, small_base(tmp_path))
    assert (conflict.patch, conflict.file) == ("two", "vllm/new.py")
    assert conflict.message.startswith("the patched file does not compile: ")
    assert "line 1" in conflict.message


def test_compiling_warns_of_nothing(
    tmp_path: Path, overlay: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """What the base's own sources are warned of is no news to who builds."""
    plain(overlay, one=added("new", r"A = '\d' is 1"))
    build(overlay, small_base(tmp_path))
    assert not recwarn.list


# Patches that a fork carries.


def forked(tmp_path: Path) -> DirectoryBase:
    engine = stand_in.sources("0.25.0")["vllm/engine/__init__.py"].replace("run(x)", "run(y)", 1)
    return small_base(tmp_path, **{"engine/__init__": engine})


def test_a_patch_named_as_present_is_recorded(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=edit(RUN, "def run(y):"), two=added("new", "A = 1"))
    made = build(overlay, forked(tmp_path), "one")
    assert [(o.patch.id, o.outcome) for o in made.outcomes] == [
        ("one", "present"),
        ("two", "applied"),
    ]
    assert [module.path for module in made.modules] == ["vllm/new.py"]


def test_a_patch_named_as_present_that_is_not_there_is_an_error(
    tmp_path: Path, overlay: Path
) -> None:
    plain(overlay, one=edit(RUN, "def run(y):") + added("new", "A = 1"))
    (conflict,) = conflicts(overlay, forked(tmp_path), "one")
    assert (conflict.file, conflict.message) == (
        "vllm/new.py",
        "NRL_VLLM_PRESENT names this patch, but the base does not carry it here",
    )


def test_an_unknown_patch_named_as_present_is_an_error(tmp_path: Path, overlay: Path) -> None:
    plain(overlay, one=added("new", "A = 1"))
    with pytest.raises(BuildError) as raised:
        build(overlay, small_base(tmp_path), "three", "two")
    assert str(raised.value) == "NRL_VLLM_PRESENT names three, two; there are: one"


def test_a_patch_named_as_present_that_is_not_needed_is_an_error(
    tmp_path: Path, overlay: Path
) -> None:
    stand_in.write_queue(overlay)
    with pytest.raises(BuildError) as raised:
        build(overlay, small_base(tmp_path, "0.29.0"), "head")
    assert str(raised.value) == (
        "NRL_VLLM_PRESENT names head, but 0.29.0 does not need it: Upstream returns a float."
    )


def test_a_development_version_takes_the_variant_before_it(tmp_path: Path, overlay: Path) -> None:
    stand_in.write_queue(overlay)
    files = stand_in.sources("0.26.0") | {"vllm/_version.py": "version = '0.28.1.dev7+gabc'\n"}
    on = from_directory(stand_in.write(tmp_path / "fork", files))
    made = build(overlay, on)
    assert made.base.version == Version("0.28.1.dev7+gabc")
    assert [o.outcome for o in made.outcomes] == ["applied"] * 3
