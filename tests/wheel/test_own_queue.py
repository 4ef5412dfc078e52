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
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks import build
from build_hooks.assembly.assemble import apply_patch, assemble
from build_hooks.assembly.tree import Tree
from build_hooks.bases.wheel import WheelBase, from_wheel
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.reader import parse
from build_hooks.errors import BaseError, Conflict
from build_hooks.files import sha256
from build_hooks.outputs import wheel
from build_hooks.project import Project
from build_hooks.queues import lock
from build_hooks.queues.reader import load
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.outputs.wheel import Content
    from build_hooks.queues.model import Patch, ReleaseDiff

PROJECT = Project.here()
QUEUE = load(PROJECT.queue)
RELEASES = [str(release) for release in QUEUE.releases]


def needed(release: Version) -> Iterator[tuple[Patch, ReleaseDiff]]:
    """Give the patches that a release needs, in their order."""
    for patch in QUEUE.patches:
        if patch.needed(release):
            diff = patch.diff(release)
            assert diff is not None
            yield patch, diff


def built(base: WheelBase) -> Content:
    return build.make(PROJECT, build.Settings(str(base.path), ()))


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
    release: str, base_wheel: Callable[[str], WheelBase], tmp_path: Path
) -> None:
    stock_wheel = base_wheel(release)
    tree = Tree(stock_wheel)
    for patch, diff in needed(stock_wheel.version):
        for file in diff.files:
            stock = stock_wheel.read(file.path)
            if stock is not None and not (tmp_path / file.path).exists():
                stand_in.write(tmp_path, {file.path: stock})
        conflicts: list[Conflict] = []
        outcome = apply_patch(patch, tree, conflicts, present=False)
        assert outcome is not None, conflicts
        process = git_apply(tmp_path, diff.text)
        assert process.returncode == 0, process.stderr
        assert "Skipped" not in process.stderr
        for file in diff.files:
            assert (tmp_path / file.path).read_bytes() == tree.current(file.path)
    assert tree.modules()


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_builds_as_it_is_locked(
    release: str, base_wheel: Callable[[str], WheelBase]
) -> None:
    stock_wheel = base_wheel(release)
    made = built(stock_wheel)
    assert made.locked
    assert made.identity.version == f"{release}.{QUEUE.revision}"
    assert made.identity.requirement == f"vllm=={release}"
    assert b"Apache License" in made.licence


@pytest.mark.parametrize("release", RELEASES)
def test_the_lock_knows_the_wheel(release: str, base_wheel: Callable[[str], WheelBase]) -> None:
    known = lock.load(PROJECT.queue, Version(release))
    assert known is not None
    path = base_wheel(release).path
    assert known.wheels[path.name] == sha256(path.read_bytes())


@pytest.mark.parametrize("release", RELEASES)
def test_every_hunk_can_be_broken(release: str, base_wheel: Callable[[str], WheelBase]) -> None:
    """Each hunk of each patch is a conflict once its old lines have changed."""
    tree = Tree(base_wheel(release))
    for patch, diff in needed(tree.base.version):
        for file in diff.files:
            content = tree.current(file.path)
            for number, hunk in enumerate(() if content is None else file.hunks, 1):
                assert content is not None
                spoilt = content.replace(b"".join(hunk.old), b"# gone\n")
                with pytest.raises(MisfitError) as raised:
                    apply(file, spoilt)
                assert number in [misfit.hunk for misfit in raised.value.misfits]
        assert apply_patch(patch, tree, [], present=False) is not None


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
    (file,) = parse(target.encode())
    with pytest.raises(MisfitError, match="ambiguous: its old text occurs at lines 5, 13"):
        apply(file, twins)


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
    (file,) = parse(text)
    with pytest.raises(MisfitError):
        apply(file, content)


@pytest.mark.parametrize("release", stand_in.RELEASES)
def test_git_apply_agrees_on_new_files_and_packages(release: str, tmp_path: Path) -> None:
    """With the small queue, which has what the project's own need not have."""
    overlay = load(stand_in.write_queue(tmp_path / "overlay"))
    made = assemble(overlay, from_wheel(stand_in.write_wheel(tmp_path, release)))
    tree = stand_in.write(tmp_path / "tree", stand_in.sources(release))
    for outcome in made.outcomes:
        if outcome.diff is not None:
            process = git_apply(tree, outcome.diff.text)
            assert process.returncode == 0, process.stderr
    for module in made.modules:
        assert module.served.startswith((tree / module.path).read_bytes())


# What the queue must be.


def test_the_wheels_of_all_releases_are_built_from_those_on_disk(
    base_wheel: Callable[[str], WheelBase], tmp_path: Path
) -> None:
    for release in RELEASES:
        made = built(base_wheel(release))
        files = wheel.write(made, tmp_path / release)
        assert not [name for name in files if name.startswith("vllm/")]
        for module in made.overlay.modules:
            assert files[f"vllm_nemo/_modules/{module.path}"].read_bytes() == module.served


def test_a_release_with_one_line_changed_is_refused(
    base_wheel: Callable[[str], WheelBase], tmp_path: Path
) -> None:
    stock_wheel = base_wheel(RELEASES[-1])
    path = built(stock_wheel).overlay.modules[0].path
    stock = stock_wheel.read(path)
    assert stock is not None
    info = stock_wheel.dist_info
    changed = tmp_path / stock_wheel.path.name
    with zipfile.ZipFile(changed, "w") as archive:
        archive.writestr("vllm/__init__.py", b"")
        archive.writestr(f"{info}/METADATA", stock_wheel.archive.read(f"{info}/METADATA"))
        for module in built(stock_wheel).overlay.modules:
            if module.stock is not None:
                tail = b"# mine\n" if module.path == path else b""
                archive.writestr(module.path, module.stock + tail)
    with pytest.raises(BaseError, match=path):
        built(from_wheel(changed))
