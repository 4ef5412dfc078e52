"""The three-way merge of one file, by git, with conflict markers where it must."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from build_hooks.errors import BuildError

# What the sides of a conflict are called in its markers.
NEW, ANCESTOR, PATCH = b"new release", b"old release", b"patch"


def merge(ours: bytes, ancestor: bytes, theirs: bytes) -> tuple[bytes, int]:
    """Merge what a patch made of an old file into the new one.

    Args:
        ours: The file of the new release.
        ancestor: The file of the old release.
        theirs: What the patch made of it.

    Returns:
        The merged file, and how many conflicts are marked in it.

    Raises:
        BuildError: if git is missing or fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        contents = {NEW.decode(): ours, ANCESTOR.decode(): ancestor, PATCH.decode(): theirs}
        for label, content in contents.items():
            path = Path(scratch, label)
            path.write_bytes(content)
            files.append(str(path))
        labels = [word for label in contents for word in ("-L", label)]
        try:
            process = subprocess.run(
                ["git", "merge-file", "-p", "--diff3", *labels, *files],  # noqa: S607
                capture_output=True,
                check=False,
                # Where a .git leads nowhere, git does not start.
                cwd=scratch,
            )
        except FileNotFoundError as error:
            raise BuildError(
                "port merges with git, which is not on the PATH: install it"
            ) from error
    if process.returncode < 0 or process.returncode > 127:
        raise BuildError(f"git merge-file failed: {process.stderr.decode(errors='replace')}")
    return process.stdout, process.returncode


def is_marked(content: bytes) -> bool:
    """Tell whether a conflict is still marked in a file.

    Args:
        content: The content of the file.
    """
    return b"\n<<<<<<< " + NEW in b"\n" + content
