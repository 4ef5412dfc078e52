"""Applies the hunks of one file, strictly.

There is no fuzz: a hunk's old text occurs in the file exactly once, byte for byte, or the hunk is a
conflict. Line numbers never choose a place; they only tell how far it has moved.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.diffs.model import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from build_hooks.diffs.model import FileDiff, Hunk


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


def apply(
    diff: FileDiff, content: bytes | None, owners: Sequence[str | None] = ()
) -> tuple[bytes, tuple[int, ...]]:
    """Apply one file's hunks.

    Args:
        diff: The diff of the file.
        content: Its content; None if there is no such file.
        owners: For each line of the file, the patch that put it in; an error that shows lines
            names it. Empty where nobody knows.

    Returns:
        The new content, and for each hunk by how many lines its place has moved.

    Raises:
        MisfitError: if the file is missing (or there already, for a new one), or if any hunk's old
            text does not occur exactly once, in order, without overlap, and at the file's begin
            or end where the hunk says so.
    """
    if diff.added:
        if content is not None:
            raise MisfitError([Misfit(0, "the patch adds this file, but it is there already")])
        content = b"".join(line for hunk in diff.hunks for line in hunk.new)
        return content, (0,) * len(diff.hunks)
    if content is None:
        raise MisfitError([Misfit(0, "the base has no such file")])
    lines = split(content)
    misfits = []
    places: list[int] = []
    end = 0
    for number, hunk in enumerate(diff.hunks, 1):
        found = occurrences(lines, hunk.old)
        if not found:
            place = _nearest(lines, hunk)
            misfits.append(
                Misfit(
                    number,
                    f"not found; nearest is line {place + 1}",
                    _show(lines, hunk, place, owners),
                )
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


def occurrences(lines: Sequence[bytes], old: Sequence[bytes]) -> list[int]:
    """Find every place at which consecutive lines equal others.

    Args:
        lines: The lines of a file.
        old: The lines to look for; if there are none, they are the whole of an empty file.

    Returns:
        The places, counted from 0.
    """
    size = len(old)
    wanted = list(old)
    if not wanted:
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


def _show(lines: Sequence[bytes], hunk: Hunk, place: int, owners: Sequence[str | None]) -> str:
    window = lines[place : place + len(hunk.old)]
    by = owners[place : place + len(hunk.old)] or [None] * len(window)
    shown = difflib.unified_diff(
        [_readable(line) for line in hunk.old],
        [
            _readable(line) + (f"  <- {who}" if who else "")
            for line, who in zip(window, by, strict=True)
        ],
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
