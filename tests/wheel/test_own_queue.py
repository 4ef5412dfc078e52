"""The project's own queue on the real releases, held against git apply.

git places hunks by line numbers, near which it takes the first match; we by the old text, which
must occur once. Where both apply, the results are the same bytes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_hooks import build
from build_hooks.assembly.assemble import apply_patch, assemble
from build_hooks.assembly.tree import Tree
from build_hooks.bases.wheel import WheelBase, from_wheel
from build_hooks.diffs.applier import MisfitError, apply
from build_hooks.diffs.reader import parse
from build_hooks.files import sha256
from build_hooks.outputs.record import verify
from build_hooks.project import Project
from build_hooks.queues.stack import stack
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.errors import Conflict

STACK = stack(Project.here().queue)
QUEUE = STACK.own
RELEASES = [str(release) for release in QUEUE.releases]


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
    base = base_wheel(release)
    tree = Tree(base)
    for patch in QUEUE.patches:
        diff = patch.diff(base.version) if patch.needed(base.version) else None
        if diff is None:
            continue
        for file in diff.files:
            stock = base.read(file.path)
            if stock is not None and not (tmp_path / file.path).exists():
                stand_in.write(tmp_path, {file.path: stock})
        conflicts: list[Conflict] = []
        assert apply_patch(patch, tree, conflicts, base.version) is not None, conflicts
        process = git_apply(tmp_path, diff.text)
        assert process.returncode == 0, process.stderr
        assert "Skipped" not in process.stderr
        for file in diff.files:
            assert (tmp_path / file.path).read_bytes() == tree.current(file.path)
    assert tree.files()


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_builds_as_it_is_locked(
    release: str, base_wheel: Callable[[str], WheelBase]
) -> None:
    base = base_wheel(release)
    locked = build.hold(base, QUEUE)
    assert locked is not None
    assert locked.wheels[base.path.name] == sha256(base.path.read_bytes())
    verify(locked, assemble(STACK, base))
    licence = base.licence()
    assert licence is not None
    assert b"Apache License" in licence


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
    queue = stack(stand_in.write_queue(tmp_path / "overlay"))
    made = assemble(queue, from_wheel(stand_in.write_wheel(tmp_path, release)))
    tree = stand_in.write(tmp_path / "tree", stand_in.sources(release))
    for outcome in made.outcomes:
        if outcome.diff is not None:
            process = git_apply(tree, outcome.diff.text)
            assert process.returncode == 0, process.stderr
    for module in made.modules:
        assert module.served.startswith((tree / module.path).read_bytes())
