"""Carrying patches to a new release, and writing diffs afresh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks import assemble, base, diff, port, queue
from build_hooks.errors import BuildError, ConflictError
from tests.support import stand_in

if TYPE_CHECKING:
    from tests.support.project import Project

NEW = "0.30.0"
TWIN = """

class Other:
    def scale(self, x):
        # Twice.
        return 2 * x

"""
MODELS = stand_in.sources("0.29.0")["vllm/models.py"]


def release(project: Project, name: str = NEW, **changes: str) -> base.Base:
    """Give a new release: 0.29.0 with changes; an empty text takes a module away."""
    files = stand_in.sources("0.29.0") | {f"vllm/{k}.py": v for k, v in changes.items()}
    files = {path: text for path, text in files.items() if text or path == "vllm/__init__.py"}
    wheel = stand_in.write_wheel(project.root / "new", name, files=files)
    return base.from_wheel(wheel)


def stock(project: Project, name: str = "0.29.0") -> base.Base:
    return base.from_wheel(project.wheels / f"vllm-{name}-py3-none-any.whl")


def carry(project: Project, new: base.Base) -> dict[str, port.Carried]:
    loaded = queue.load(project.overlay)
    carried = port.port(
        loaded, stock(project), new, project.overlay / "patches", project.root / "scratch"
    )
    return {entry.patch: entry for entry in carried}


def outcomes(carried: dict[str, port.Carried]) -> list[str]:
    return [entry.outcome for entry in carried.values()]


def support(project: Project) -> queue.Queue:
    """Add the new release to the series; return the queue, which must be sound."""
    project.add_release(NEW)
    return queue.load(project.overlay)


def variant(project: Project, name: str) -> Path:
    return project.overlay / "patches" / name / f"{NEW}.patch"


def test_what_applies_is_left_as_it_is(project: Project) -> None:
    carried = carry(project, release(project))
    assert outcomes(carried) == [port.APPLIES, port.APPLIES, port.NOT_NEEDED]
    assert carried["head"].remark == "Upstream returns a float."
    assert not variant(project, "sqrt").exists()


def test_a_clean_merge_is_written_as_a_variant(project: Project) -> None:
    """Upstream repeats what the hunk looks for, which strict applying cannot place."""
    new = release(project, models=MODELS + TWIN)
    before = {p: p.read_bytes() for p in project.overlay.rglob("*.patch")}
    carried = carry(project, new)
    assert outcomes(carried) == [port.APPLIES, port.PORTED, port.NOT_NEEDED]
    assert carried["scale"].remark == f"wrote {NEW}.patch; review it, then lock"
    made = assemble.assemble(support(project), new)
    assert [outcome.outcome for outcome in made.outcomes] == ["applied", "applied", "not-needed"]
    (models,) = [module for module in made.modules if module.path == "vllm/models.py"]
    assert models.served.count(b"return FACTOR * x") == 1
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_conflict_leaves_markers_and_refresh_takes_the_resolved_tree(project: Project) -> None:
    new = release(project, models=MODELS.replace("return 2 * x", "return x + x"))
    carried = carry(project, new)
    assert outcomes(carried) == [port.APPLIES, port.MERGED, port.NOT_NEEDED]
    tree = project.root / "scratch" / "scale"
    assert carried["scale"].remark == (
        f"resolve the markers below {tree}, then run: "
        f"python -m build_hooks refresh scale --release {NEW} --tree {tree}"
    )
    assert not variant(project, "scale").exists()
    file = tree / "vllm" / "models.py"
    text = file.read_text()
    for mark in ("<<<<<<< new release", "||||||| old release", "=======", ">>>>>>> patch"):
        assert f"\n{mark}" in text
    loaded = support(project)
    with pytest.raises(BuildError, match=r"unresolved conflict markers in vllm/models\.py"):
        port.refresh(loaded, loaded.patches[1], new, tree)

    ours, rest = text.split("<<<<<<< new release\n")[0], text.split(">>>>>>> patch\n")[1]
    file.write_text(
        f"{ours}        from vllm.scaling import FACTOR\n\n        return FACTOR * x\n{rest}"
    )
    variant(project, "scale").write_text(port.refresh(loaded, loaded.patches[1], new, tree))
    made = assemble.assemble(queue.load(project.overlay), new)
    assert made.outcomes[1].variant is not None
    assert made.outcomes[1].variant.release == Version(NEW)
    (models,) = [module for module in made.modules if module.path == "vllm/models.py"]
    assert b"return FACTOR * x" in models.served
    assert b"x + x" not in models.served


def test_what_an_earlier_run_left_is_taken_away(project: Project) -> None:
    stale = project.root / "scratch" / "scale" / "vllm" / "stale.py"
    stand_in.write(stale.parent, {"stale.py": ""})
    carry(project, release(project, models=MODELS.replace("return 2 * x", "return x + x")))
    assert not stale.exists()


def test_upstream_has_it(project: Project) -> None:
    engine = stand_in.sources("0.29.0")["vllm/engine/__init__.py"]
    new = release(
        project,
        models=MODELS.replace("math.sqrt(x)", "math.sqrt(abs(x))"),
        **{"engine/__init__": engine.replace("(x):\n", "(x):\n    x = float(x)\n", 1)},
    )
    carried = carry(project, new)
    assert outcomes(carried) == [port.UPSTREAM, port.APPLIES, port.NOT_NEEDED]
    assert carried["sqrt"].remark == "end the patch: narrow `vllm`, give the reason"
    assert not variant(project, "sqrt").exists()


def test_a_file_that_upstream_has_brought_is_no_conflict(project: Project) -> None:
    """Half of the patch is upstream: the variant is what is left of it."""
    carried = carry(project, release(project, scaling="FACTOR = 3\n"))
    assert outcomes(carried) == [port.APPLIES, port.PORTED, port.NOT_NEEDED]
    (file,) = diff.parse(variant(project, "scale").read_bytes())
    assert (file.path, file.added) == ("vllm/models.py", False)


def test_a_file_that_the_patch_adds_is_no_conflict(project: Project) -> None:
    carry(project, release(project, models=MODELS + TWIN))
    text = variant(project, "scale").read_text()
    assert "--- /dev/null\n+++ b/vllm/scaling.py\n" in text


def test_a_module_that_has_moved_is_a_conflict(project: Project) -> None:
    carried = carry(project, release(project, **{"engine/__init__": ""}))
    assert carried["sqrt"].outcome == port.MERGED
    assert f"{NEW} has no vllm/engine/__init__.py; resolve" in carried["sqrt"].remark
    tree = project.root / "scratch" / "sqrt"
    assert "<<<<<<< new release" in (tree / "vllm" / "engine" / "__init__.py").read_text()
    loaded = support(project)
    with pytest.raises(BuildError, match="unresolved conflict markers in vllm/engine/__init__"):
        port.refresh(loaded, loaded.patches[0], stock(project), tree)


def test_a_queue_that_does_not_apply_to_the_old_release_is_refused(project: Project) -> None:
    loaded = queue.load(project.overlay)
    old = release(project, models="pass\n")
    with pytest.raises(ConflictError, match="sqrt"):
        port.port(loaded, old, stock(project), project.overlay / "patches", project.root)


def test_no_git_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project.root))
    with pytest.raises(BuildError, match="git, which is not on the PATH"):
        carry(project, release(project, models="pass\n"))


# Writing afresh.


def refresh(project: Project, index: int, tree: Path | None = None, name: str = "0.29.0") -> str:
    loaded = queue.load(project.overlay)
    return port.refresh(loaded, loaded.patches[index], stock(project, name), tree)


def test_refresh_gives_exact_lines_and_least_context(project: Project) -> None:
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
         # Twice.
         return 2 * x
\x20
"""
    stand_in.write_patch(project.overlay, "sqrt", {"0.25.0": wide})
    text = refresh(project, 0)
    assert text == (
        "--- a/vllm/models.py\n+++ b/vllm/models.py\n@@ -10,3 +10,3 @@\n"
        "     def forward(self, x):\n"
        "-        return math.sqrt(x)\n"
        "+        return math.sqrt(abs(x))\n"
        " \n"
    )
    stand_in.write_patch(project.overlay, "sqrt", {"0.25.0": text})
    assert refresh(project, 0) == text


@pytest.mark.parametrize("index", range(3))
def test_refresh_leaves_least_diffs_as_they_are(project: Project, index: int) -> None:
    loaded = queue.load(project.overlay)
    for written in loaded.patches[index].variants:
        text = port.refresh(
            loaded, loaded.patches[index], stock(project, str(written.release)), None
        )
        assert sorted(diff.parse(text.encode()), key=str) == sorted(written.files, key=str)


def test_refresh_sees_the_patches_before(project: Project) -> None:
    tree = stand_in.write(project.root / "tree", {"vllm/scaling.py": "FACTOR = 4\n"})
    loaded = queue.load(project.overlay)
    text = port.refresh(loaded, loaded.patches[2], stock(project, "0.26.0"), tree)
    assert text == (
        "--- a/vllm/scaling.py\n+++ b/vllm/scaling.py\n@@ -1,1 +1,1 @@\n-FACTOR = 3\n+FACTOR = 4\n"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no vllm/...py"),
        ({"vllm/models.cfg": "", "models.py": ""}, "holds no vllm/...py"),
        ({"vllm/engine/__init__.py": "A = 1 \n"}, "an added line ends in white space"),
        ({"vllm/engine/__init__.py": b"A = '\xff'\n"}, "is not UTF-8"),
        ({"vllm/data.py": "A = 1\r\n"}, "has a carriage return"),
    ],
)
def test_refresh_refuses_a_tree_that_gives_no_diff(
    project: Project, files: dict[str, str | bytes], message: str
) -> None:
    tree = project.root / "tree"
    tree.mkdir()
    with pytest.raises(BuildError, match=message):
        refresh(project, 0, stand_in.write(tree, files))


def test_refresh_of_no_change_is_refused(project: Project) -> None:
    tree = stand_in.write(project.root / "tree", {"vllm/models.py": MODELS})
    with pytest.raises(BuildError, match=r"sqrt changes nothing in vLLM 0\.29\.0"):
        refresh(project, 0, tree)


def test_refresh_needs_the_patches_before(project: Project) -> None:
    broken = base.from_directory(project.directory("broken", "0.29.0", models="pass\n"))
    loaded = queue.load(project.overlay)
    with pytest.raises(ConflictError, match="Mend the earlier patches first"):
        port.refresh(loaded, loaded.patches[1], broken, None)
    with pytest.raises(ConflictError, match="sqrt"):
        port.refresh(loaded, loaded.patches[0], broken, None)


def test_refresh_needs_a_variant(project: Project) -> None:
    older = release(project, "0.24.0")
    loaded = queue.load(project.overlay)
    fields = stand_in.FIELDS["sqrt"] | {"vllm": ">=0.20"}
    stand_in.write_patch(project.overlay, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    loaded = queue.load(project.overlay)
    with pytest.raises(BuildError, match=r"sqrt has no variant for vLLM 0\.24\.0"):
        port.refresh(loaded, loaded.patches[0], older, None)
