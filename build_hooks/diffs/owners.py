"""Who put each line of a file there: the base, or which patch.

No patch undoes another. A hunk must not take out a line that an earlier patch put in, nor bring
back a line that an earlier patch took out, unless its patch says that it amends the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from build_hooks.diffs.model import split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from build_hooks.diffs.model import FileDiff, Hunk


@dataclass(frozen=True)
class Clash:
    """A hunk that undoes what an earlier patch did.

    Attributes:
        hunk: The hunk, counted from 1.
        owner: The earlier patch.
        line: The line of the file as the earlier patches leave it, counted from 1.
        text: The line.
        taken_out: Whether the hunk takes the line out; if not, it brings it back.
    """

    hunk: int
    owner: str
    line: int
    text: bytes
    taken_out: bool


@dataclass(frozen=True)
class _Line:
    """A line, or the trace of one that a patch took out."""

    text: bytes
    owner: str | None
    removed_by: str | None = None


class Ownership:
    """The lines of one file, and who put each of them there."""

    def __init__(self, content: bytes | None) -> None:
        """Start with a file as the base has it; None where the base has none."""
        self._lines = [_Line(text, None) for text in split(content or b"")]

    @property
    def content(self) -> bytes:
        """The file."""
        return b"".join(line.text for line in self._lines if line.removed_by is None)

    @property
    def owners(self) -> list[str | None]:
        """The patch that put each line in; None for a line of the base."""
        return [line.owner for line in self._lines if line.removed_by is None]

    def apply(
        self,
        diff: FileDiff,
        offsets: Sequence[int],
        patch: str,
        amends: Collection[str] = (),
    ) -> tuple[Ownership, list[Clash]]:
        """Follow one patch's change of the file.

        Args:
            diff: The change; it has been applied to ``content``.
            offsets: What applying it returned: the lines by which each hunk had moved.
            patch: The id of the patch.
            amends: The ids of patches that it may undo.

        Returns:
            The file afterwards, and every line in which the patch undoes another.
        """
        live = [place for place, line in enumerate(self._lines) if line.removed_by is None]
        lines: list[_Line] = []
        clashes: list[Clash] = []
        end = 0
        for number, (hunk, offset) in enumerate(zip(diff.hunks, offsets, strict=True), 1):
            first = 0 if diff.added else hunk.start - 1 + offset
            start, stop = self._span(live, first, len(hunk.old))
            lines += self._lines[end:start]
            change = _Change(number, patch, frozenset({patch, *amends}), first)
            lines += change.follow(hunk, self._lines[start:stop], clashes)
            end = stop
        made = Ownership(None)
        made._lines = lines + self._lines[end:]
        return made, clashes

    def _span(self, live: Sequence[int], first: int, size: int) -> tuple[int, int]:
        """Return the places of consecutive lines, with the traces before, between and after."""
        start = live[first - 1] + 1 if first else 0
        after = first + size
        return start, live[after] if after < len(live) else len(self._lines)


@dataclass(frozen=True)
class _Change:
    """One hunk on its way through the lines that it covers."""

    number: int
    patch: str
    allowed: frozenset[str]
    first: int

    def follow(self, hunk: Hunk, lines: Sequence[_Line], clashes: list[Clash]) -> Iterator[_Line]:
        """Give the lines afterwards; what is undone goes to ``clashes``."""
        matcher = SequenceMatcher(None, hunk.old, hunk.new, autojunk=False)
        # For each old line, the traces that lie before it; the last entry is behind all of them.
        gaps: list[list[_Line]] = [[]]
        old: list[_Line] = []
        for line in lines:
            if line.removed_by is None:
                old.append(line)
                gaps.append([])
            else:
                gaps[-1].append(line)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                for index in range(i1, i2):
                    yield from gaps[index]
                    yield old[index]
                continue
            for index in range(i1, i2):
                yield from gaps[index]
                yield self._take_out(old[index], index, clashes)
            traces = [trace for gap in gaps[i1 : i2 + 1] for trace in gap]
            for text in hunk.new[j1:j2]:
                self._hold_against(traces, text, i1, clashes)
                yield _Line(text, self.patch)
        yield from gaps[len(old)]

    def _take_out(self, line: _Line, index: int, clashes: list[Clash]) -> _Line:
        if line.owner is not None and line.owner not in self.allowed:
            at = self.first + index + 1
            clashes.append(Clash(self.number, line.owner, at, line.text, taken_out=True))
        return _Line(line.text, line.owner, self.patch)

    def _hold_against(
        self, traces: Sequence[_Line], text: bytes, index: int, clashes: list[Clash]
    ) -> None:
        """Find out whether a new line was taken out here by another patch."""
        if not any(character.isalnum() for character in text.decode(errors="replace")):
            # A blank line, or a bracket, says nothing.
            return
        for trace in traces:
            by = trace.removed_by
            if trace.text == text and by is not None and by not in self.allowed:
                at = self.first + index + 1
                clashes.append(Clash(self.number, by, at, text, taken_out=False))
                return
