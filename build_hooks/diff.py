"""Unified diffs: a strict reader, a strict applier, and a writer of minimal ones.

``unidiff`` parses; what it lets through and a patch queue must not is refused here. Applying knows
no fuzz: a hunk's old text occurs in the file exactly once, byte for byte, or the hunk is a
conflict. Line numbers are never used to choose a place, only to tell how far it has moved.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unidiff.patch import Hunk as ParsedHunk
    from unidiff.patch import PatchedFile

# Far above any patch of a queue whose diffs are hooks of a few lines.
MAXIMUM_BYTES = 1 << 20

_HEADER = re.compile(r"@@ -\d{1,7}(,\d{1,7})? \+\d{1,7}(,\d{1,7})? @@", re.ASCII)
_INDENT = re.compile(r" *\t")


class DiffError(ValueError):
    """A text that is not a diff this project accepts: (line, message) for each fault."""

    def __init__(self, faults: Sequence[tuple[int, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"line {line}: {message}" for line, message in faults))


@dataclass(frozen=True)
class Hunk:
    """One change: the old lines must occur once; ``start`` (1-based) is where they are expected.

    As for ``git apply``, a hunk that starts at line 1 must begin the file, and one without a line
    of context after its last change must end it.
    """

    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    ends_file: bool = False


@dataclass(frozen=True)
class FileDiff:
    """The hunks of one file, in order. ``added``: the file does not exist before."""

    path: str
    added: bool
    hunks: tuple[Hunk, ...]

    def reversed(self) -> FileDiff:
        """Return the diff that takes this one back, expected at the same lines."""
        return FileDiff(
            self.path,
            self.added,
            tuple(Hunk(h.start, h.new, h.old, h.ends_file) for h in self.hunks),
        )


@dataclass(frozen=True)
class Misfit:
    """A hunk (counted from 1; 0: the file) that has no place, and what is near where it belongs."""

    hunk: int
    message: str
    detail: str = ""


class MisfitError(ValueError):
    """A file diff that does not fit a content."""

    def __init__(self, misfits: Sequence[Misfit]) -> None:
        self.misfits = tuple(misfits)
        super().__init__("; ".join(misfit.message for misfit in misfits))


def split(content: bytes) -> list[bytes]:
    r"""Split into lines that keep their ``\n``; no other byte ends a line."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def parse(data: bytes) -> tuple[FileDiff, ...]:
    """Read a unified diff as the queue holds it.

    Raises:
        DiffError: for anything but file headers and hunks (``diff --git`` lines, timestamps,
            prose), a path outside ``vllm/``, a deletion or rename, a damaged or empty hunk.
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
    files = []
    accounted = 0
    for patched in patched_files:
        files.append(_file(patched, accounted, faults))
        accounted += 2 + sum(1 + len(hunk) for hunk in patched)
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
    in_hunk = False
    for number, line in enumerate(text.split("\n")[:-1], 1):
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
        elif line[0] == "+" and line != line.rstrip() and not line.startswith("+++ "):
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
    faults += [(line, fault) for fault in _path_faults(path)]
    hunks = []
    line += 2
    for hunk in patched:
        hunks.append(_hunk(hunk, line, faults, added=added))
        line += 1 + len(hunk)
    if not hunks:
        faults.append((line, "has no hunk"))
    elif added and len(hunks) > 1:
        faults.append((line, "a new file has one hunk"))
    return FileDiff(path, added, tuple(hunks))


def _path_faults(path: str) -> Iterator[str]:
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or ":" in path:
        yield f"{path!r} is not a relative path with forward slashes"
    elif any(part in ("", ".", "..") for part in parts):
        yield f"{path!r} has an empty, '.' or '..' component"
    elif parts[0] != "vllm":
        yield f"{path!r} lies outside vllm/"
    elif not path.endswith(".py"):
        yield f"{path!r} is not a Python module"
    elif not all(part.isidentifier() for part in path.removesuffix(".py").split("/")):
        yield f"{path!r} cannot be imported: each component must be an identifier"


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


def apply(diff: FileDiff, content: bytes | None) -> tuple[bytes, tuple[int, ...]]:
    """Apply one file's hunks; return the new content and each hunk's offset in lines.

    Raises:
        MisfitError: if the file is missing (or there already, for a new one), or if any hunk's old
            text does not occur exactly once, in order, without overlap, and at the file's begin
            or end where the hunk says so.
    """
    if diff.added:
        if content is not None:
            raise MisfitError([Misfit(0, "the patch adds this file, but it is there already")])
        return b"".join(line for hunk in diff.hunks for line in hunk.new), (0,)
    if content is None:
        raise MisfitError([Misfit(0, "the base has no such file")])
    lines = split(content)
    misfits = []
    places: list[int] = []
    end = 0
    for number, hunk in enumerate(diff.hunks, 1):
        found = _occurrences(lines, hunk.old)
        if not found:
            place = _nearest(lines, hunk)
            misfits.append(
                Misfit(number, f"not found; nearest is line {place + 1}", _show(lines, hunk, place))
            )
        elif len(found) > 1:
            at = ", ".join(str(place + 1) for place in found)
            misfits.append(Misfit(number, f"ambiguous: its old text occurs at lines {at}"))
        elif found[0] < end:
            misfits.append(
                Misfit(
                    number,
                    f"out of order: found at line {found[0] + 1}, the one before ends at {end}",
                )
            )
        elif hunk.start == 1 and found[0] > 0:
            message = f"must begin the file (it starts at line 1), but is at line {found[0] + 1}"
            misfits.append(Misfit(number, message))
        elif hunk.ends_file and found[0] + len(hunk.old) < len(lines):
            message = (
                "must end the file (no line of context follows its last change), but ends at line "
                f"{found[0] + len(hunk.old)} of {len(lines)}"
            )
            misfits.append(Misfit(number, message))
        else:
            places.append(found[0])
            end = found[0] + len(hunk.old)
    if misfits:
        raise MisfitError(misfits)
    result: list[bytes] = []
    end = 0
    for place, hunk in zip(places, diff.hunks, strict=True):
        result += lines[end:place]
        result += hunk.new
        end = place + len(hunk.old)
    result += lines[end:]
    offsets = tuple(p + 1 - h.start for p, h in zip(places, diff.hunks, strict=True))
    return b"".join(result), offsets


def _occurrences(lines: Sequence[bytes], old: Sequence[bytes]) -> list[int]:
    size = len(old)
    wanted = list(old)
    if not wanted:
        # The whole of an empty file.
        return [] if lines else [0]
    return [
        place
        for place in range(len(lines) - size + 1)
        if lines[place] == wanted[0] and lines[place : place + size] == wanted
    ]


def _nearest(lines: Sequence[bytes], hunk: Hunk) -> int:
    """Return the place at which most of the hunk's old lines stand, the closest of equals."""
    votes: Counter[int] = Counter()
    for index, old in enumerate(hunk.old):
        if old.strip():
            votes.update(place - index for place, line in enumerate(lines) if line == old)
    expected = min(hunk.start - 1, max(len(lines) - 1, 0))
    best = max(votes, key=lambda p: (votes[p], -abs(p - expected)), default=expected)
    return max(best, 0)


def _show(lines: Sequence[bytes], hunk: Hunk, place: int) -> str:
    window = lines[place : place + len(hunk.old)]
    shown = difflib.unified_diff(
        [_readable(line) for line in hunk.old],
        [_readable(line) for line in window],
        "expected by the patch",
        f"base, line {place + 1}",
        n=len(hunk.old),
        lineterm="",
    )
    return "\n".join(line for line in shown if not line.startswith("@@"))


def _readable(line: bytes) -> str:
    """Show a line with what no eye can see: white space at its end, a missing line end."""
    text = line.decode(errors="backslashreplace")
    body = text.rstrip()
    rest = text[len(body) :].removesuffix("\n")
    shown = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in body)
    if rest.strip(" "):
        rest = repr(rest)[1:-1]
    elif rest:
        rest = rest[:-1] + "\\x20"
    return shown + rest + ("" if text.endswith("\n") else "\\ no line end")


def make(path: str, before: bytes | None, after: bytes) -> str:
    """Write the diff of one file with as little context as makes each hunk unique.

    Returns the empty string when nothing changes. ``parse`` of the result gives a diff whose
    ``apply`` to ``before`` is ``after``.

    Raises:
        DiffError: if no diff that ``parse`` accepts tells the change: an added line with white
            space at its end, a carriage return, a path outside ``vllm/``.
    """
    if before == after:
        return ""
    try:
        text = _make(path, before, after)
    except UnicodeDecodeError as error:
        raise DiffError([(0, f"{path} is not UTF-8")]) from error
    parse(text.encode())
    return text


def _make(path: str, before: bytes | None, after: bytes) -> str:
    new = split(after)
    if before is None:
        body = [_header(0, 0, 0, len(new)), *(_line("+", line) for line in new)]
        return f"--- /dev/null\n+++ b/{path}\n" + "".join(body)
    old = split(before)
    out = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for group in _groups(old, new):
        first_old, last_old = group[0][1], group[-1][2]
        first_new, last_new = group[0][3], group[-1][4]
        out.append(_header(first_old, last_old - first_old, first_new, last_new - first_new))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += [_line(" ", line) for line in old[i1:i2]]
            else:
                out += [_line("-", line) for line in old[i1:i2]]
                out += [_line("+", line) for line in new[j1:j2]]
    return "".join(out)


_Opcode = tuple[str, int, int, int, int]


def _groups(old: list[bytes], new: list[bytes]) -> list[list[_Opcode]]:
    """Group changes into hunks, each with the least context that occurs once in ``old``."""
    # SequenceMatcher is quadratic on long files; what both share at the ends needs no matching.
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    matcher = difflib.SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    )
    changes = [
        (i1 + head, i2 + head, j1 + head, j2 + head)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
    spans = [_span(old, i1, i2) for i1, i2, _, _ in changes]
    groups: list[list[_Opcode]] = []
    index = 0
    while index < len(changes):
        low, high = spans[index]
        members = [changes[index]]
        index += 1
        while index < len(changes) and spans[index][0] <= high:
            high = max(high, spans[index][1])
            members.append(changes[index])
            index += 1
        groups.append(_opcodes(low, high, members))
    return groups


def _span(old: list[bytes], i1: int, i2: int) -> tuple[int, int]:
    low, high = max(i1 - 1, 0), min(i2 + 1, len(old))
    while len(_occurrences(old, old[low:high])) > 1:
        if low == 0 and high == len(old):
            break
        # Below first: what follows a change tells more than the blank line before it.
        if (high - i2) <= (i1 - low) and high < len(old):
            high += 1
        elif low > 0:
            low -= 1
        else:
            high += 1
    return low, high


def _opcodes(low: int, high: int, members: list[tuple[int, int, int, int]]) -> list[_Opcode]:
    opcodes: list[_Opcode] = []
    old = low
    new = members[0][2] - (members[0][0] - low)
    for i1, i2, j1, j2 in members:
        if i1 > old:
            opcodes.append(("equal", old, i1, new, j1))
        opcodes.append(("replace", i1, i2, j1, j2))
        old, new = i2, j2
    if high > old:
        opcodes.append(("equal", old, high, new, new + high - old))
    return opcodes


def _header(old: int, old_size: int, new: int, new_size: int) -> str:
    """Write a header from 0-based starts; an empty side counts from the line before."""
    return f"@@ -{old + bool(old_size)},{old_size} +{new + bool(new_size)},{new_size} @@\n"


def _line(mark: str, line: bytes) -> str:
    text = mark + line.decode()
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"
