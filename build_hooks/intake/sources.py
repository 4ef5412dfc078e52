"""What a user can name as the source of patches: files, edited trees, commits."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.diffs import paths
from build_hooks.diffs.model import common_ends, split
from build_hooks.errors import BuildError
from build_hooks.files import read_regular
from build_hooks.intake import commits, message
from build_hooks.intake.listing import names, same
from build_hooks.intake.model import Diff, ForeignHunk, ForeignPatch, Kind, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from build_hooks.bases.base import Base

# Far above any series of patches.
_MAXIMUM_BYTES = 64 << 20
_CONTEXT = 3
# What an interpreter, an editor or a patch program leaves behind.
_LITTER = re.compile(r"(^|/)(__pycache__/|\.)|\.(pyc|orig|rej|swp)$|~$")


def read(source: str, base: Base) -> list[ForeignPatch]:
    """Read the patches of one source.

    Args:
        source: A file, a mailbox, a directory with ``vllm/``, or ``REPO:COMMIT``, ``REPO:A..B``.
        base: The release that an edited tree is compared with.

    Raises:
        BuildError: if there is no such source, or no patch in it.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return [_tree(path, source, base)]
    if not path.exists() and (named := commits.named(source)) is not None:
        data = commits.mailbox(*named)
    else:
        data = _read(path, source)
    found = list(message.patches(data, source, _title(path)))
    # Cover letters and answers are mails of a series, too.
    patches = [patch for patch in found if patch.diff.sections or patch.diff.faults]
    if not patches:
        raise BuildError(f"{source} holds no diff")
    return patches


def _read(path: Path, source: str) -> bytes:
    try:
        return read_regular(path, _MAXIMUM_BYTES)
    except OSError as error:
        hint = ""
        if not path.exists():
            hint = "; commits are named as REPOSITORY:A..B, with a REPOSITORY that is there"
        raise BuildError(f"{source} cannot be read: {error.strerror}{hint}") from error


def _title(path: Path) -> str:
    """Make a title of a file's name: what is left without its number and its ending."""
    stem = path.name.removesuffix(".mbox").removesuffix(".diff").removesuffix(".patch")
    return re.sub(r"^\d+[-_.]", "", stem) or stem


def _tree(root: Path, source: str, base: Base) -> ForeignPatch:
    """Compare an edited tree with the base."""
    if not (root / "vllm").is_dir():
        raise BuildError(
            f"{source} contains no vllm/: name the directory above the package, or "
            "patch files one by one, in their order"
        )
    known = names(base)
    sections: list[Section] = []
    found = set()
    for file in sorted((root / "vllm").rglob("*")):
        path = file.relative_to(root).as_posix()
        if _LITTER.search(path) or not (file.is_file() or file.is_symlink()):
            continue
        found.add(path)
        try:
            if path not in known or not same(base, path, file):
                sections.append(_compared(file, path, base, new=path not in known))
        except OSError as error:
            raise BuildError(f"{file} cannot be read: {error.strerror}") from error
    # A few files alone are no copy of the package: what is not there was not deleted.
    lacking = sorted(path for path in known - found if path.endswith(".py"))
    notes: tuple[str, ...] = ()
    if lacking and (root / ".git").exists():
        notes = (f"{len(lacking)} modules of the wheel are not in this checkout; they stay",)
    elif len(lacking) < len(found):
        sections += [Section(0, path, None, Kind.DELETE) for path in lacking]
    if not sections:
        raise BuildError(f"{source} is as vLLM {base.version} is ({base.origin})")
    diff = Diff((), tuple(sections), (), crlf=False)
    return ForeignPatch(source, root.resolve().name, "", "", diff, fixed=True, notes=notes)


def _compared(file: Path, path: str, base: Base, *, new: bool) -> Section:
    """Describe the change of one file; of what a queue cannot have, that there is one."""
    old = None if new else path
    if any(paths.faults(path)):
        return Section(0, old, path)
    after = read_regular(file, _MAXIMUM_BYTES)
    before = b"" if new else base.read(path) or b""
    return Section(0, old, path, hunks=_hunks(split(before), split(after)))


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[ForeignHunk, ...]:
    """Compare lines; as much context as `diff -u` gives."""
    # SequenceMatcher is slow on long files; what both share at the ends needs no matching.
    head, tail = common_ends(old, new)
    head, tail = max(head - _CONTEXT, 0), max(tail - _CONTEXT, 0)
    matcher = SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    )
    hunks: list[ForeignHunk] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        lines: list[tuple[str, bytes]] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [(" ", line) for line in old[head + i1 : head + i2]]
            else:
                lines += [("-", line) for line in old[head + i1 : head + i2]]
                lines += [("+", line) for line in new[head + j1 : head + j2]]
        start = head + group[0][1] + 1 if old else 0
        hunks.append(ForeignHunk(len(hunks) + 1, start, tuple(lines)))
    return tuple(hunks)
