"""A patch as it was found, before anything is known of where it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from build_hooks.errors import BuildError

# Of one reason, as many files are named; of all reasons, as many lines are written.
_NAMED = 5
_LINES = 9


@dataclass(frozen=True)
class ForeignHunk:
    """One change of a file.

    Attributes:
        number: Its number in its section, from 1.
        start: The line of the old file that it names.
        lines: Each line with its mark: a blank, ``-`` or ``+``.
    """

    number: int
    start: int
    lines: tuple[tuple[str, bytes], ...]

    @property
    def old(self) -> list[bytes]:
        """The lines that must be there."""
        return [text for mark, text in self.lines if mark != "+"]

    @property
    def new(self) -> list[bytes]:
        """The lines that will be there."""
        return [text for mark, text in self.lines if mark != "-"]

    @property
    def leading(self) -> int:
        """The lines of context before the first change."""
        return _context(self.lines)

    @property
    def trailing(self) -> int:
        """The lines of context after the last change."""
        return _context(self.lines[::-1])

    @property
    def place(self) -> int:
        """The place that it names, from 0; of a hunk without old lines, where to insert."""
        return max(self.start - 1, 0) if self.old else self.start


def _context(lines: Sequence[tuple[str, bytes]]) -> int:
    return next((n for n, (mark, _) in enumerate(lines) if mark != " "), len(lines))


class Kind(Enum):
    """What a section does to its file."""

    CHANGE = "change"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"
    BINARY = "binary"
    LINK = "link"
    SUBMODULE = "submodule"
    MODE = "mode"


@dataclass(frozen=True)
class Section:
    """What a diff does to one file.

    Attributes:
        line: Where it begins in its source, from 1.
        old: The path before; None for a file that is new.
        new: The path after; None for a file that is gone.
        kind: What is done.
        hunks: The changes.
        mode: A file mode that it sets beside its other changes; empty for none.
    """

    line: int
    old: str | None
    new: str | None
    kind: Kind = Kind.CHANGE
    hunks: tuple[ForeignHunk, ...] = ()
    mode: str = ""

    @property
    def adds(self) -> bool:
        """Whether it makes a new file, or fills an empty one."""
        if self.kind is not Kind.CHANGE:
            return False
        return self.old is None or self.fills

    @property
    def fills(self) -> bool:
        """Whether it is one hunk that puts lines where there are none: a new or an empty file."""
        return len(self.hunks) == 1 and not self.hunks[0].old and not self.hunks[0].start


@dataclass(frozen=True)
class Fault:
    """A place of a source that cannot be read as a diff."""

    line: int
    message: str


@dataclass(frozen=True)
class Diff:
    """A diff in whatever shape, read.

    Attributes:
        prose: The lines before its first section.
        sections: Its parts, one a file.
        faults: What is no diff and looks like one.
        crlf: Whether the hunks' lines ended in CR LF.
    """

    prose: tuple[str, ...]
    sections: tuple[Section, ...]
    faults: tuple[Fault, ...]
    crlf: bool


@dataclass(frozen=True)
class ForeignPatch:
    """One patch with what its source tells of it.

    Attributes:
        source: What the source is called; patches of one source name their files alike.
        title: What it is about, in one line.
        author: Who wrote it; empty if nobody says.
        text: What else is said of it.
        diff: The changes.
        fixed: Whether the paths are ``vllm/...`` as they stand.
        notes: What the user should know of how it was read.
    """

    source: str
    title: str
    author: str
    text: str
    diff: Diff
    fixed: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, order=True)
class Reason:
    """Why something cannot come in; the worst sort first."""

    rank: int
    text: str
    advice: str = field(default="", compare=False)


UNREADABLE = Reason(0, "cannot be read as a unified diff")
DELETES = Reason(1, "an overlay cannot delete a module")
DELETES_DATA = Reason(2, "an overlay cannot delete a file")
RENAMES = Reason(3, "an overlay cannot rename a module, for its old name would stay")
BINARY = Reason(4, "a binary file cannot be carried")
LINKS = Reason(4, "an overlay has no links and no submodules")
CHANGES_DATA = Reason(5, "an overlay can add a data file, not change one")
MODE = Reason(7, "only the file mode is changed, and an overlay has none")
CRLF = Reason(8, "has line ends CR LF in the base, which no diff of a queue can tell")
NOTHING = Reason(9, "changes nothing in vllm/")
OUTSIDE = Reason(10, "lies outside vllm/", "--drop-outside leaves such files out")


class IntakeError(BuildError):
    """Patches that do not come in; nothing was written.

    Args:
        refused: What is refused: (reason, where) for each.
        others: How many hunks have no place, which is not told while something is refused.
    """

    def __init__(self, refused: Iterable[tuple[Reason, str]], others: int = 0) -> None:
        grouped: dict[Reason, list[str]] = {}
        for reason, where in refused:
            grouped.setdefault(reason, []).append(where)
        lines = [_line(reason, places) for reason, places in sorted(grouped.items())]
        if others:
            one = others == 1
            lines.append(f"{others} hunk{' has' if one else 's have'} no place in the base, too")
        if len(lines) > _LINES:
            lines[_LINES - 1 :] = [f"and {len(lines) - _LINES + 1} more reasons"]
        super().__init__("\n".join(["nothing was imported:", *(f"  {line}" for line in lines)]))


def _line(reason: Reason, places: Sequence[str]) -> str:
    named = list(dict.fromkeys(places))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    advice = f"; {reason.advice}" if reason.advice else ""
    return f"{reason.text}: {', '.join(named[:_NAMED])}{more}{advice}"


def unfit(fault: str) -> Reason:
    """Give the reason for a file whose name no queue can have.

    Args:
        fault: What is wrong with the name.
    """
    return Reason(6, fault)


def untellable(fault: str) -> Reason:
    """Give the reason for a change that the strict format cannot tell.

    Args:
        fault: What the strict format refuses.
    """
    return Reason(8, f"no diff of a queue can tell it, {fault}")
