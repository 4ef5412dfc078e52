"""The project's own queue on the real releases, held against git apply.

git places hunks by line numbers, near which it takes the first match; we by the old text, which
must occur once. Where both apply, the results are the same bytes.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from build_hooks import assemble, base, diff, lock, plan, queue, wheel
from build_hooks.errors import BaseError
from tests.support import stand_in

QUEUE = plan.load_queue()
RELEASES = [str(release) for release in QUEUE.releases]


def needed(release: Version) -> Iterator[tuple[queue.Patch, queue.Variant]]:
    """Give the patches that a release needs, in their order."""
    for patch in QUEUE.patches:
        if patch.needed(release):
            variant = patch.variant(release)
            assert variant is not None
            yield patch, variant


def git_apply(directory: Path, patch: bytes) -> subprocess.CompletedProcess[str]:
    """Run git apply where no repository above and no configuration can change what it does.

    Inside a repository, git would skip paths outside of it and end with status 0.
    """
    return subprocess.run(
        ["git", "apply", "--verbose", "--whitespace=error-all", "-"],
        cwd=directory,
        input=patch.decode(),
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CEILING_DIRECTORIES": str(directory.parent),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_DIR": str(directory / "no-repository"),
        },
    )


@pytest.mark.parametrize("release", RELEASES)
def test_git_apply_agrees_on_every_patch(
    release: str, base_wheel: Callable[[str], base.WheelBase], tmp_path: Path
) -> None:
    stock_wheel = base_wheel(release)
    tree = assemble.Tree(stock_wheel)
    for patch, variant in needed(stock_wheel.version):
        for file in variant.files:
            stock = stock_wheel.read(file.path)
            if stock is not None and not (tmp_path / file.path).exists():
                stand_in.write(tmp_path, {file.path: stock})
        conflicts: list[assemble.Conflict] = []
        outcome = assemble.apply_patch(patch, tree, conflicts, present=False)
        assert outcome is not None, conflicts
        process = git_apply(tmp_path, variant.data)
        assert process.returncode == 0, process.stderr
        assert "Skipped" not in process.stderr
        for file in variant.files:
            assert (tmp_path / file.path).read_bytes() == tree.current(file.path)
    assert tree.modules()


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_builds_as_it_is_locked(
    release: str, base_wheel: Callable[[str], base.WheelBase]
) -> None:
    stock_wheel = base_wheel(release)
    plan_made = plan.check(QUEUE, stock_wheel)
    assert plan_made.locked
    assert plan_made.identity.version == f"{release}.{QUEUE.revision}"
    assert plan_made.identity.requirement == f"vllm=={release}"
    assert b"Apache License" in plan_made.licence


@pytest.mark.parametrize("release", RELEASES)
def test_the_lock_knows_the_wheel(
    release: str, base_wheel: Callable[[str], base.WheelBase]
) -> None:
    known = lock.load(plan.OVERLAY, Version(release))
    assert known is not None
    path = base_wheel(release).path
    assert known.wheels[path.name] == assemble.sha256(path.read_bytes())


@pytest.mark.parametrize("release", RELEASES)
def test_every_hunk_can_be_broken(
    release: str, base_wheel: Callable[[str], base.WheelBase]
) -> None:
    """Each hunk of each patch is a conflict once its old lines have changed."""
    tree = assemble.Tree(base_wheel(release))
    for patch, variant in needed(tree.base.version):
        for file in variant.files:
            content = tree.current(file.path)
            for number, hunk in enumerate(() if content is None else file.hunks, 1):
                assert content is not None
                spoilt = content.replace(b"".join(hunk.old), b"# gone\n")
                with pytest.raises(diff.MisfitError) as raised:
                    diff.apply(file, spoilt)
                assert number in [misfit.hunk for misfit in raised.value.misfits]
        assert assemble.apply_patch(patch, tree, [], present=False) is not None


# Where git apply and we part.


def duplicate() -> tuple[str, bytes]:
    """Return a diff, and a file in which its old text has a twin above that it is not for."""
    text = (
        "--- a/vllm/models.py\n+++ b/vllm/models.py\n@@ -5,3 +5,3 @@\n"
        " def scale(x):\n-    return 2 * x\n+    return 3 * x\n \n"
    )
    function = "def scale(x):\n    return 2 * x\n\n"
    return text, f"class A:\n    pass\n\n\n{function}\nclass B:\n    pass\n\n\n{function}".encode()


def test_git_apply_takes_a_wrong_duplicate_and_we_refuse(tmp_path: Path) -> None:
    """The hunk was written for the second of two; lines have moved, and git takes the first."""
    text, twins = duplicate()
    target = text.replace("@@ -5,3 +5,3 @@", "@@ -8,3 +8,3 @@")
    stand_in.write(tmp_path, {"vllm/models.py": twins})
    process = git_apply(tmp_path, target.encode())
    assert process.returncode == 0
    changed = (tmp_path / "vllm" / "models.py").read_bytes()
    assert changed.index(b"3 * x") < changed.index(b"class B")
    (file,) = diff.parse(target.encode())
    with pytest.raises(diff.MisfitError, match="ambiguous: its old text occurs at lines 5, 13"):
        diff.apply(file, twins)


@pytest.mark.parametrize(
    "hunk",
    [
        "@@ -1,2 +1,2 @@\n-b\n+B\n c\n",  # at line 1 of the diff, but not of the file
        "@@ -3,2 +3,3 @@\n b\n c\n+C\n",  # nothing after the change, but not at the file's end
    ],
)
def test_what_git_apply_refuses_we_refuse(hunk: str, tmp_path: Path) -> None:
    text = f"--- a/vllm/models.py\n+++ b/vllm/models.py\n{hunk}".encode()
    content = b"a\nb\nc\nd\n"
    stand_in.write(tmp_path, {"vllm/models.py": content})
    assert git_apply(tmp_path, text).returncode != 0
    (file,) = diff.parse(text)
    with pytest.raises(diff.MisfitError):
        diff.apply(file, content)


@pytest.mark.parametrize("release", stand_in.RELEASES)
def test_git_apply_agrees_on_new_files_and_packages(release: str, tmp_path: Path) -> None:
    """With the small queue, which has what the project's own need not have."""
    overlay = queue.load(stand_in.write_queue(tmp_path / "overlay"))
    made = assemble.assemble(overlay, base.from_wheel(stand_in.write_wheel(tmp_path, release)))
    tree = stand_in.write(tmp_path / "tree", stand_in.sources(release))
    for outcome in made.outcomes:
        if outcome.variant is not None:
            process = git_apply(tree, outcome.variant.data)
            assert process.returncode == 0, process.stderr
    for module in made.modules:
        assert module.served.startswith((tree / module.path).read_bytes())


# What the queue must be.


def test_the_wheels_of_all_releases_are_built_from_those_on_disk(
    base_wheel: Callable[[str], base.WheelBase], tmp_path: Path
) -> None:
    for release in RELEASES:
        made = plan.check(QUEUE, base_wheel(release))
        files = wheel.stage(made, tmp_path / release)
        assert not [name for name in files if name.startswith("vllm/")]
        for module in made.overlay.modules:
            assert files[f"vllm_nemo/_modules/{module.path}"].read_bytes() == module.served


def test_a_release_with_one_line_changed_is_refused(
    base_wheel: Callable[[str], base.WheelBase], tmp_path: Path
) -> None:
    stock_wheel = base_wheel(RELEASES[-1])
    path = plan.check(QUEUE, stock_wheel).overlay.modules[0].path
    stock = stock_wheel.read(path)
    assert stock is not None
    info = stock_wheel.dist_info
    changed = tmp_path / stock_wheel.path.name
    with zipfile.ZipFile(changed, "w") as archive:
        archive.writestr("vllm/__init__.py", b"")
        archive.writestr(f"{info}/METADATA", stock_wheel.archive.read(f"{info}/METADATA"))
        for module in plan.check(QUEUE, stock_wheel).overlay.modules:
            if module.stock is not None:
                tail = b"# mine\n" if module.path == path else b""
                archive.writestr(module.path, module.stock + tail)
    with pytest.raises(BaseError, match=path):
        plan.check(QUEUE, base.from_wheel(changed))
