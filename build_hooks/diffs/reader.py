"""Reads a unified diff as a queue holds it.

``unidiff`` parses; what it lets through and a patch queue must not is refused here.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from build_hooks.diffs import paths
from build_hooks.diffs.model import MAXIMUM_BYTES, DiffError, FileDiff, Hunk, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unidiff.patch import Hunk as ParsedHunk
    from unidiff.patch import PatchedFile

_HEADER = re.compile(r"@@ -\d{1,7}(,\d{1,7})? \+\d{1,7}(,\d{1,7})? @@", re.ASCII)
_INDENT = re.compile(r" *\t")


def parse(data: bytes) -> tuple[FileDiff, ...]:
    """Read a unified diff as the queue holds it.

    Args:
        data: The file.

    Returns:
        The diff of each file that it changes, in its order.

    Raises:
        DiffError: for anything but file headers and hunks (``diff --git`` lines, timestamps,
            prose), a path that no overlay can carry, a deletion or rename, a damaged or empty
            hunk. A new file that is empty has a header, and no hunk.
    """
    text = _decode(data)
    faults = list(_line_faults(text))
    if faults:
        raise DiffError(faults)
    try:
        patched_files = list(PatchSet(text))
    except UnidiffParseError as error:
        raise DiffError([(0, f"not a unified diff: {error}")]) from error
    if not patched_files:
        raise DiffError([(0, "no file is changed")])
    lines = split(data)
    files = []
    accounted = 0
    for patched in patched_files:
        size = 2 + sum(1 + len(hunk) for hunk in patched)
        section = b"".join(lines[accounted : accounted + size])
        files.append(replace(_file(patched, accounted, faults), text=section))
        accounted += size
    for path, times in Counter(file.path for file in files).items():
        if times > 1:
            faults.append((0, f"{path} occurs {times} times"))
    if accounted != text.count("\n"):
        faults.append((0, "has lines that belong to no hunk"))
    if faults:
        raise DiffError(faults)
    return tuple(files)


def _decode(data: bytes) -> str:
    if len(data) > MAXIMUM_BYTES:
        raise DiffError(
            [(0, f"{len(data)} bytes; a diff of the queue has {MAXIMUM_BYTES} at most")]
        )
    if not data.endswith(b"\n"):
        raise DiffError([(data.count(b"\n") + 1, "the last line has no line end")])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DiffError([(line, "not UTF-8")]) from error


def _line_faults(text: str) -> Iterator[tuple[int, str]]:
    in_hunk = in_data = False
    before = ""
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if line.startswith("+++ ") and before.startswith("--- "):
            # Blanks and tabs of a data file are what it says.
            in_data = paths.is_data(line)
        before = line
        if "\r" in line:
            yield number, "has a carriage return"
        elif "\0" in line:
            yield number, "has a NUL"
        elif line.startswith(("--- ", "+++ ")) and "\t" in line:
            yield number, "has a timestamp; only the path belongs here"
        elif line.startswith("@@"):
            in_hunk = True
            if not _HEADER.fullmatch(line):
                yield number, "not a hunk header, or one with text after it: @@ -1,2 +1,3 @@"
        elif not in_hunk and not line.startswith(("--- ", "+++ ")):
            yield number, "not part of a diff: file headers and hunks only"
        elif not line:
            yield number, "whitespace damage: an empty context line is one space"
        elif line[0] not in " +-" and line != "\\ No newline at end of file":
            yield number, "not part of a diff: file headers and hunks only"
        elif in_data or line.startswith("+++ "):
            continue
        elif line[0] == "+" and line != line.rstrip():
            yield number, "whitespace damage: an added line ends in white space"
        elif line[0] == "+" and _INDENT.match(line, 1):
            yield number, "whitespace damage: an added line is indented with a tab"


def _file(patched: PatchedFile, line: int, faults: list[tuple[int, str]]) -> FileDiff:
    source, target = patched.source_file, patched.target_file
    line += 1
    added = source == "/dev/null"
    path = target.removeprefix("b/")
    if target == "/dev/null":
        faults.append((line, "deletes a file; an overlay cannot"))
        path = source.removeprefix("a/")
    elif not target.startswith("b/") or not (added or source.startswith("a/")):
        faults.append((line, "paths are a/vllm/... and b/vllm/... (or /dev/null for a new file)"))
    elif not added and source[2:] != path:
        faults.append((line, f"renames {source[2:]} to {path}; an overlay cannot"))
    faults += [(line, fault) for fault in paths.faults(path)]
    if paths.is_data(path) and not added:
        faults.append((line, f"changes {path}; an overlay can add a data file, not change one"))
    hunks = []
    line += 2
    for hunk in patched:
        hunks.append(_hunk(hunk, line, faults, added=added))
        line += 1 + len(hunk)
    if not hunks and not added:
        faults.append((line, "has no hunk; only a new file that is empty has none"))
    elif added and len(hunks) > 1:
        faults.append((line, "a new file has one hunk"))
    return FileDiff(path, added, tuple(hunks))


def _hunk(hunk: ParsedHunk, line: int, faults: list[tuple[int, str]], *, added: bool) -> Hunk:
    old: list[bytes] = []
    new: list[bytes] = []
    sides: list[list[bytes]] = []
    trailing = False
    for entry in hunk:
        if entry.line_type == "\\":
            # "\ No newline at end of file" speaks of the line before it.
            if not sides:
                faults.append((line, "begins with '\\', which belongs after a line"))
            for side in sides:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        sides = [side for side, kinds in ((old, " -"), (new, " +")) if entry.line_type in kinds]
        for side in sides:
            side.append(entry.value.encode())
        trailing = entry.is_context
    if not all(text.endswith(b"\n") for side in (old, new) for text in side[:-1]):
        faults.append((line, "only the last line of a file can lack its line end"))
    if old == new:
        faults.append((line, "the hunk changes nothing"))
    elif added and old:
        faults.append((line, "a new file cannot have old lines"))
    elif not added and not old and hunk.source_start:
        faults.append((line, "the hunk has no old text, so it has no place"))
    return Hunk(max(hunk.source_start, 1), tuple(old), tuple(new), ends_file=not trailing)
