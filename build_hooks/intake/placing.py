"""Finds the place of each hunk in a file.

A hunk's old lines occur once, or at the line that its header names. Only if the user asks for fuzz,
lines of context at its ends may differ, and each hunk that was placed so is to be reviewed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.diffs.applier import Misfit, MisfitError, apply, occurrences
from build_hooks.diffs.model import FileDiff, Hunk, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from build_hooks.intake.model import ForeignHunk

# Lines of context at each end that may differ, as in `patch -F3`.
_FUZZ = 3


@dataclass(frozen=True)
class Placed:
    """A file with its hunks in place.

    Attributes:
        content: The file.
        moved: By how many lines each hunk had moved.
        review: What a person should look at: (number of the hunk, what is uncertain).
    """

    content: bytes
    moved: tuple[int, ...]
    review: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Spot:
    """Where a hunk goes: the lines from ``place`` on that ``new`` replaces."""

    place: int
    size: int
    new: list[bytes]
    moved: int
    doubt: str = ""


def place(
    hunks: Sequence[ForeignHunk],
    content: bytes,
    owners: Sequence[str | None] = (),
    *,
    fuzz: bool = False,
) -> Placed:
    """Put the hunks of one file in place.

    Args:
        hunks: The hunks, in order.
        content: The file.
        owners: For each line, the patch that put it in; for messages.
        fuzz: Whether context may differ.

    Raises:
        MisfitError: naming each hunk that has no place.
    """
    lines = split(content)
    spots: list[_Spot] = []
    misfits: list[Misfit] = []
    end = moved = 0
    for hunk in hunks:
        try:
            spot = _exact(hunk, lines, end, moved)
        except MisfitError as error:
            loose = _loose(hunk, lines, end, moved) if fuzz else None
            if loose is None:
                misfits += error.misfits or _nowhere(hunk, content, owners)
                continue
            spot = loose
        spots.append(spot)
        end, moved = spot.place + spot.size, spot.moved
    if misfits:
        raise MisfitError(misfits)
    result: list[bytes] = []
    end = 0
    for spot in spots:
        result += [*lines[end : spot.place], *spot.new]
        end = spot.place + spot.size
    doubts = [(h.number, s.doubt) for h, s in zip(hunks, spots, strict=True) if s.doubt]
    return Placed(
        b"".join([*result, *lines[end:]]), tuple(spot.moved for spot in spots), tuple(doubts)
    )


def _exact(hunk: ForeignHunk, lines: Sequence[bytes], end: int, moved: int) -> _Spot:
    """Find the place at which every old line stands.

    Raises:
        MisfitError: if there is none, or more than one; without a misfit if no line is near.
    """
    old = hunk.old
    if not old and lines:
        message = "has no line of context; make the diff with some (diff -u)"
        raise MisfitError([Misfit(hunk.number, message)])
    everywhere = occurrences(lines, old)
    if not everywhere:
        raise MisfitError([])
    found = [at for at in everywhere if at >= end]
    if not found:
        message = f"out of order: found at line {everywhere[0] + 1}, the one before ends at {end}"
        raise MisfitError([Misfit(hunk.number, message)])
    # Less context before, or none behind, is what the begin or the end of a file leaves.
    if hunk.start <= 1 and hunk.leading < hunk.trailing:
        found = [at for at in found if at == 0]
        if not found:
            message = f"begins its file, but is at line {everywhere[0] + 1} of this one"
            raise MisfitError([Misfit(hunk.number, message)])
    if hunk.leading and not hunk.trailing:
        found = [at for at in found if at + len(old) == len(lines)]
        if not found:
            message = f"ends its file, but is at line {everywhere[-1] + 1} of {len(lines)}"
            raise MisfitError([Misfit(hunk.number, message)])
    named = hunk.place + moved
    if len(found) > 1 and named not in found:
        at = ", ".join(str(place + 1) for place in found)
        raise MisfitError([Misfit(hunk.number, f"ambiguous: its old text occurs at lines {at}")])
    at_line = found[0] if len(found) == 1 else named
    return _Spot(at_line, len(old), hunk.new, at_line - hunk.place)


def _loose(hunk: ForeignHunk, lines: Sequence[bytes], end: int, moved: int) -> _Spot | None:
    """Find the place nearest to the named line at which a hunk stands but for some context."""
    named = hunk.place + moved
    old, new = hunk.old, hunk.new
    if not old:
        at = min(max(named, end), len(lines))
        return _Spot(at, 0, new, at - hunk.place, f"no context; placed at line {at + 1} by number")
    context = max(hunk.leading, hunk.trailing)
    for fuzz in range(min(_FUZZ, context) + 1):
        head = max(0, hunk.leading - context + fuzz)
        tail = max(0, hunk.trailing - context + fuzz)
        core = old[head : len(old) - tail]
        if not any(line.strip() for line in core):
            return None
        found = [at for at in occurrences(lines, core) if at >= end]
        if found:
            at = min(found, key=lambda at: abs(at - head - named))
            doubt = _doubt(hunk, lines, (at - head, at, at + len(core)), found)
            return _Spot(at, len(core), new[head : len(new) - tail], at - head - hunk.place, doubt)
    return None


def _doubt(
    hunk: ForeignHunk, lines: Sequence[bytes], span: tuple[int, int, int], found: Sequence[int]
) -> str:
    """Say what is uncertain about a place: context that differs, other places."""
    first, at, end = span
    old = hunk.old
    around = [n for n in range(first, first + len(old)) if not at <= n < end]
    there = range(len(lines))
    differ = sum(n not in there or lines[n] != old[n - first] for n in around)
    doubts = []
    if differ:
        doubts.append(f"context differed in {differ} line{'' if differ == 1 else 's'}")
    others = [str(place + 1) for place in found if place != at]
    if others:
        doubts.append(f"placed at line {at + 1}, fits at {', '.join(others)} too")
    edge = "begin" if hunk.trailing else "end"
    return "; ".join(doubts) or f"not at the {edge} of the file"


def _nowhere(hunk: ForeignHunk, content: bytes, owners: Sequence[str | None]) -> tuple[Misfit, ...]:
    """Describe the lines nearest to a hunk, as a build does."""
    single = Hunk(max(hunk.start, 1), tuple(hunk.old), tuple(hunk.new))
    try:
        apply(FileDiff("", added=False, hunks=(single,)), content, owners)
    except MisfitError as error:
        return tuple(Misfit(hunk.number, m.message, m.detail) for m in error.misfits)
    return (Misfit(hunk.number, "not found"),)
