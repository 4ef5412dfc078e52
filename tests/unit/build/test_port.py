"""Carrying patches to a new release, and writing diffs afresh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks.bases.wheel import from_wheel
from build_hooks.diffs.reader import parse
from build_hooks.errors import BuildError, ConflictError
from build_hooks.shared import outcomes
from build_hooks.upkeep.port import Carried, port
from build_hooks.upkeep.refresh import refresh
from build_hooks.upkeep.trees import PatchTree
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from tests.support.project import Small

NEW = "0.30.0"
TWIN = """

class Other:
    def scale(self, x):
        # Twice.
        return 2 * x

"""
MODELS = stand_in.sources("0.29.0")["vllm/models.py"]


def release(project: Small, name: str = NEW, **changes: str | None) -> Base:
    """Give a new release: 0.29.0 with changes."""
    files = stand_in.sources("0.29.0", **changes)
    return from_wheel(stand_in.write_wheel(project.root / "new", name, files=files))


def carry(project: Small, new: Base) -> dict[str, Carried]:
    carried = port(project.load(), project.open(), new, project.root / "scratch")
    return {entry.patch: entry for entry in carried}


def told(carried: dict[str, Carried]) -> list[str]:
    return [entry.outcome for entry in carried.values()]


def refreshed(
    project: Small, patch: str, base: Base | None = None, tree: Path | None = None
) -> str:
    queue = project.load()
    (chosen,) = [known for known in queue.patches if known.id == patch]
    given = PatchTree(tree) if tree else None
    return refresh(queue, chosen, base or project.open(), given, project.root / "scratch")


def test_what_applies_is_left_as_it_is(project: Small) -> None:
    carried = carry(project, release(project))
    assert told(carried) == [outcomes.APPLIED, outcomes.APPLIED, outcomes.NOT_NEEDED]
    assert carried["head"].remark == "Upstream returns a float."
    assert not project.variant("sqrt", NEW).exists()


def test_a_checkout_whose_repository_is_elsewhere_is_merged_in(
    project: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worktree of git, or a submodule, that was mounted or copied alone."""
    directory = tmp_path / "worktree"
    directory.mkdir()
    (directory / ".git").write_text("gitdir: /nonexistent/.git/worktrees/one\n")
    monkeypatch.chdir(directory)
    test_a_clean_merge_is_written_as_a_variant(project)


def test_a_clean_merge_is_written_as_a_variant(project: Small) -> None:
    """Upstream repeats what the hunk looks for, which strict applying cannot place."""
    new = release(project, models=MODELS + TWIN)
    before = {p: p.read_bytes() for p in project.queue.rglob("*.patch")}
    carried = carry(project, new)
    assert told(carried) == [outcomes.APPLIED, outcomes.PORTED, outcomes.NOT_NEEDED]
    assert carried["scale"].remark == f"wrote {NEW}.patch; review it, then lock"
    project.add_release(NEW)
    made = project.assemble(new)
    assert [outcome.outcome for outcome in made.outcomes] == ["applied", "applied", "not-needed"]
    (models,) = [module for module in made.modules if module.path == "vllm/models.py"]
    assert models.served.count(b"return FACTOR * x") == 1
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_conflict_leaves_markers_and_refresh_takes_the_resolved_tree(project: Small) -> None:
    new = release(project, models=MODELS.replace("return 2 * x", "return x + x"))
    carried = carry(project, new)
    assert told(carried) == [outcomes.APPLIED, outcomes.CONFLICT, outcomes.NOT_NEEDED]
    tree = project.root / "scratch" / "scale"
    assert carried["scale"].remark == (
        f"resolve the markers below {tree} (or delete it to merge again), then run:\n"
        f"python -m build_hooks refresh scale --release {NEW} --tree {tree}"
    )
    assert not project.variant("scale", NEW).exists()
    file = tree / "vllm" / "models.py"
    text = file.read_text()
    for mark in ("<<<<<<< new release", "||||||| old release", "=======", ">>>>>>> patch"):
        assert f"\n{mark}" in text
    project.add_release(NEW)
    with pytest.raises(BuildError, match=r"conflicts are still marked in vllm/models\.py"):
        refreshed(project, "scale", new, tree)

    ours, rest = text.split("<<<<<<< new release\n")[0], text.split(">>>>>>> patch\n")[1]
    file.write_text(
        f"{ours}        from vllm.scaling import FACTOR\n\n        return FACTOR * x\n{rest}"
    )
    project.variant("scale", NEW).write_text(refreshed(project, "scale", new, tree))
    made = project.assemble(new)
    assert made.outcomes[1].diff is not None
    assert made.outcomes[1].diff.variants == {
        "vllm/models.py": Version(NEW),
        "vllm/scaling.py": Version("0.25.0"),
    }
    (models,) = [module for module in made.modules if module.path == "vllm/models.py"]
    assert b"return FACTOR * x" in models.served
    assert b"x + x" not in models.served


def test_what_an_earlier_run_left_is_taken_away(project: Small) -> None:
    stale = project.root / "scratch" / "scale" / "vllm" / "stale.py"
    stand_in.write(stale.parent, {"stale.py": ""})
    carry(project, release(project, models=MODELS.replace("return 2 * x", "return x + x")))
    assert not stale.exists()


def test_upstream_has_it(project: Small) -> None:
    engine = stand_in.sources("0.29.0")["vllm/engine/__init__.py"]
    new = release(
        project,
        models=MODELS.replace("math.sqrt(x)", "math.sqrt(abs(x))"),
        **{"engine/__init__": engine.replace("(x):\n", "(x):\n    x = float(x)\n", 1)},
    )
    carried = carry(project, new)
    assert told(carried) == [outcomes.UPSTREAM, outcomes.APPLIED, outcomes.NOT_NEEDED]
    assert carried["sqrt"].remark == "end the patch: narrow `vllm`, give the reason"
    assert not project.variant("sqrt", NEW).exists()


def test_a_file_that_upstream_has_brought_is_to_be_ended(project: Small) -> None:
    """Half of the patch is upstream: the variant is what is left of it."""
    new = release(project, models=MODELS + TWIN, scaling="FACTOR = 3\n")
    carried = carry(project, new)
    assert told(carried) == [outcomes.APPLIED, outcomes.UPSTREAM, outcomes.NOT_NEEDED]
    assert carried["scale"].remark == (
        f"{NEW} has what it does to vllm/scaling.py: add below [ends] in its patch.toml: "
        f'"vllm/scaling.py" = "{NEW}"; wrote {NEW}.patch; review it, then lock'
    )
    (file,) = parse(project.variant("scale", NEW).read_bytes())
    assert (file.path, file.added) == ("vllm/models.py", False)
    # What is said is what helps.
    project.add_release(NEW)
    diffs = {r: project.variant("scale", r).read_text() for r in ("0.25.0", "0.29.0", NEW)}
    fields = {**stand_in.FIELDS["scale"], "ends": {"vllm/scaling.py": NEW}}
    stand_in.write_patch(project.queue, "scale", diffs, **fields)
    made = project.assemble(new)
    assert [module.path for module in made.modules if "scale" in module.patches] == [
        "vllm/models.py"
    ]


def test_a_file_that_only_has_to_be_ended_gets_no_variant(project: Small) -> None:
    carried = carry(project, release(project, scaling="FACTOR = 3\n"))
    assert carried["scale"].outcome == outcomes.UPSTREAM
    assert carried["scale"].remark.endswith(f'"vllm/scaling.py" = "{NEW}"')
    assert not project.variant("scale", NEW).exists()


def test_a_patch_that_the_old_release_does_not_need_has_nothing_to_merge(project: Small) -> None:
    new = release(project, models="pass\n")
    fields = {**stand_in.FIELDS["head"], "vllm": "!=0.29.0"}
    stand_in.write_patch(project.queue, "head", stand_in.PATCHES["head"], **fields)
    carried = carry(project, new)
    assert carried["head"].outcome == outcomes.NO_SOURCE
    assert carried["head"].remark == (
        "0.29.0 has no diff of this patch to merge; port it from 0.26.0"
    )


def test_a_module_that_is_gone_is_a_decision(project: Small) -> None:
    new = release(project, **{"engine/__init__": None})
    carried = carry(project, new)
    assert carried["sqrt"].outcome == outcomes.DECISION
    ends = f'"vllm/engine/__init__.py" = "{NEW}"'
    assert carried["sqrt"].remark.startswith(f"{NEW} has no vllm/engine/__init__.py. Decide: ")
    assert ends in carried["sqrt"].remark
    tree = project.root / "scratch" / "sqrt"
    assert [path.name for path in tree.glob("vllm/**/*.py")] == ["models.py"]
    # Decided: it is needed no longer.
    project.add_release(NEW)
    fields = {"ends": {"vllm/engine/__init__.py": NEW}}
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    assert carry(project, new)["sqrt"].outcome == outcomes.APPLIED


def test_a_queue_that_does_not_apply_to_the_old_release_is_refused(project: Small) -> None:
    with pytest.raises(ConflictError, match="sqrt"):
        port(project.load(), project.broken(), project.open(), project.root)


def test_no_git_is_told(project: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project.root))
    with pytest.raises(BuildError, match="git, which is not on the PATH"):
        carry(project, release(project, models="pass\n"))


# Writing afresh.


def test_refresh_gives_exact_lines_and_least_context(project: Small) -> None:
    wide = """\
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -90,9 +93,9 @@
\x20
 class Model:
     def forward(self, x):
-        return math.sqrt(x)
+        return math.sqrt(abs(x))
\x20
     def scale(self, x):
         # Doubles.
         return 2 * x
\x20
"""
    stand_in.write_patch(project.queue, "sqrt", {"0.25.0": wide})
    text = refreshed(project, "sqrt", project.open("0.25.0"))
    assert text == (
        "--- a/vllm/models.py\n+++ b/vllm/models.py\n@@ -6,3 +6,3 @@\n"
        "     def forward(self, x):\n"
        "-        return math.sqrt(x)\n"
        "+        return math.sqrt(abs(x))\n"
        " \n"
    )
    stand_in.write_patch(project.queue, "sqrt", {"0.25.0": text})
    assert refreshed(project, "sqrt", project.open("0.25.0")) == text


def test_refresh_leaves_least_diffs_as_they_are_and_says_nothing_twice(project: Small) -> None:
    for patch in project.load().patches:
        written = {variant.release: variant.files for variant in patch.variants}
        for release in stand_in.RELEASES:
            if not patch.needed(Version(release)):
                continue
            files = written.get(Version(release), ())
            text = refreshed(project, patch.id, project.open(release))
            assert {f.path: f.text.decode() for f in files} == {
                f.path: f.text.decode() for f in (parse(text.encode()) if text else ())
            }


def test_refresh_sees_the_patches_before(project: Small) -> None:
    tree = stand_in.write(
        project.root / "tree",
        {
            "vllm/scaling.py": "FACTOR = 4\n",
            "vllm/models.py": project.assemble(project.open("0.26.0"))
            .modules[1]
            .served.partition(b"\n# Changed by vllm-nemo")[0],
        },
    )
    with pytest.raises(ConflictError, match="undoes scale: it takes out line 1, which scale put"):
        refreshed(project, "head", project.open("0.26.0"), tree)
    fields = {**stand_in.FIELDS["head"], "amends": ["scale"]}
    stand_in.write_patch(project.queue, "head", stand_in.PATCHES["head"], **fields)
    text = refreshed(project, "head", project.open("0.26.0"), tree)
    assert text == (
        "--- a/vllm/scaling.py\n+++ b/vllm/scaling.py\n@@ -1,1 +1,1 @@\n-FACTOR = 3\n+FACTOR = 4\n"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no vllm/"),
        ({"vllm/models.cfg": "", "models.py": ""}, "contains no vllm/"),
        ({"vllm/engine/__init__.py": "A = 1 \n"}, "an added line ends in white space"),
        ({"vllm/engine/__init__.py": b"A = '\xff'\n"}, "is not UTF-8"),
        ({"vllm/data.py": "A = 1\r\n"}, "has a carriage return"),
        ({"vllm/models.py": MODELS}, r"sqrt changes nothing in vLLM 0\.29\.0"),
        (
            {"vllm/models.py": MODELS + "A = 1\n"},
            r'add below \[ends\] in its patch.toml: "vllm/engine/__init__.py" = "0\.29\.0", then',
        ),
        (
            {"vllm/models.py": MODELS, "vllm/engine/__init__.py": "A = 1\n"},
            r'add below \[ends\] in its patch.toml: "vllm/models.py" = "0\.29\.0", then run this',
        ),
    ],
)
def test_refresh_refuses_a_tree_that_gives_no_diff(
    project: Small, files: dict[str, str | bytes], message: str
) -> None:
    tree = project.root / "tree"
    tree.mkdir()
    with pytest.raises(BuildError, match=message):
        refreshed(project, "sqrt", tree=stand_in.write(tree, files))


def test_refresh_needs_the_patches_before(project: Small) -> None:
    with pytest.raises(ConflictError, match="Correct the patch; then run this again"):
        refreshed(project, "scale", project.broken())
    with pytest.raises(ConflictError, match="sqrt"):
        refreshed(project, "sqrt", project.broken())


def test_refresh_needs_a_variant(project: Small) -> None:
    older = release(project, "0.24.0")
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], vllm=">=0.20")
    with pytest.raises(BuildError, match=r"sqrt has no variant for vLLM 0\.24\.0"):
        refreshed(project, "sqrt", older)
