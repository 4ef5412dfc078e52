"""Commits of a local git repository, as the mailbox that git makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from build_hooks.errors import BuildError

# What a user's own settings would change about a diff.
_FORMAT = (
    "--stdout",
    "--no-numbered",
    "--no-signature",
    "--no-attach",
    "--no-cover-letter",
    "--no-thread",
    "--no-base",
    "--no-signoff",
    "--subject-prefix=PATCH",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--find-renames",
    "--submodule=short",
    "-U3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)


def named(source: str) -> tuple[Path, str] | None:
    """Read ``REPO:COMMIT`` or ``REPO:A..B``; None if a source is nothing of the kind.

    Args:
        source: What the user named.
    """
    repository, colon, revisions = source.rpartition(":")
    path = Path(repository).expanduser()
    return (path, revisions) if colon and repository and path.is_dir() else None


def mailbox(repository: Path, revisions: str) -> bytes:
    """Return commits as a mailbox, oldest first.

    Args:
        repository: A directory inside of a local repository.
        revisions: One commit, or a range ``A..B``.

    Raises:
        BuildError: if there is no such commit, or a merge is among them, which has no diff.
    """
    first, dots, last = revisions.partition("..")
    if dots:
        chosen = [f"{_commit(repository, first)}..{_commit(repository, last or 'HEAD')}"]
    else:
        chosen = ["-1", _commit(repository, first)]
    walked = chosen if dots else ["--no-walk", chosen[1]]
    parents = [line.split() for line in _git(repository, "rev-list", "--parents", *walked)]
    merges = [line[0][:12].decode() for line in parents if len(line) > 2]
    if merges:
        raise BuildError(
            f"{repository}:{revisions} has {len(merges)} merges ({', '.join(merges[:3])}), which "
            "have no diff of their own. Name commits without merges, or import the whole as one "
            "patch: git diff A B > FILE"
        )
    if not parents:
        raise BuildError(f"{repository}:{revisions} has no commits")
    return b"\n".join(_git(repository, "format-patch", *_FORMAT, *chosen)) + b"\n"


def _commit(repository: Path, name: str) -> str:
    # What begins with a dash would be read as an option.
    if not name.startswith("-"):
        found = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if found:
            return found[0].decode()
    raise BuildError(f"{repository} has no commit {name!r}")


def _git(repository: Path, *arguments: str) -> list[bytes]:
    """Run git; an unknown commit gives nothing, anything else that fails is an error."""
    try:
        process = subprocess.run(
            ["git", "-C", str(repository), "-c", "i18n.logOutputEncoding=UTF-8", *arguments],  # noqa: S607
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildError("commits are read with git, which is not on the PATH") from error
    if process.returncode and arguments[0] == "rev-parse" and not process.stderr:
        return []
    if process.returncode:
        raise BuildError(
            f"git {arguments[0]} failed in {repository}: "
            f"{process.stderr.decode(errors='replace').strip()}"
        )
    return process.stdout.split(b"\n")[:-1]
