"""Reads a unified diff in whatever shape it was published.

It takes what git, diff, quilt, Subversion and Mercurial write around a diff, and what editors and
mail programs do to one. What it does not understand is a fault, never left out.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from build_hooks.intake.model import Diff, Fault, ForeignHunk, Kind, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

_HUNK = re.compile(rb"@@ -(\d{1,7})(?:,(\d{1,7}))? \+(\d{1,7})(?:,(\d{1,7}))? @@")
# "\t2026-01-01 ...", or a date behind a blank, or Subversion's "(revision 7)".
_STAMP = re.compile(
    r"(\t.*| +\d{4}-\d\d-\d\d \d\d:\d\d.*| +\((revision|working copy|nonexistent)\b.*)$"
)
# The time that `diff -N` gives a file which is not there.
_NO_TIME = re.compile(r"\t(1970-01-01|1969-12-31|Thu Jan +1 |Wed Dec 31 )")
_HEADERS = (
    "old mode ",
    "new mode ",
    "deleted file mode ",
    "new file mode ",
    "copy from ",
    "copy to ",
    "rename from ",
    "rename to ",
    "similarity index ",
    "dissimilarity index ",
    "index ",
)
# Lines outside of hunks that stand for a change which cannot be read here.
_LOST = {
    rb"diff --(cc|combined) ": "the combined diff of a merge; import its commits one by one",
    rb"@@@": "the combined diff of a merge; import its commits one by one",
    rb"\*{15}$": "a context diff; make it with diff -u",
    rb"@@ -": "a hunk that belongs to no file",
    rb"Submodule \S+ [0-9a-f]{7,}": "a change of a submodule",
    rb"Only in [^:]+: ": "a file that only one tree has; make the diff with diff -N",
}
# `git log -p` writes the newest commit first, so that the parts do not follow each other.
_COMMIT = re.compile(rb"commit [0-9a-f]{40}\b")
# What git calls the content of an empty file, by SHA-1 and by SHA-256.
_EMPTY = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
# Of blank lines at the end of a source, as many may have been cut off.
_CUT_OFF = 3


def read(data: bytes, first: int = 1) -> Diff:
    """Read a diff.

    Args:
        data: The text, perhaps with prose before and after it.
        first: The number of its first line.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    reader = _Reader([line.removesuffix(b"\r") for line in lines], first)
    reader.run()
    crlf = any(lines[at].endswith(b"\r") for at in reader.body)
    return Diff(tuple(reader.prose), tuple(reader.sections), tuple(reader.faults), crlf)


class _Reader:
    def __init__(self, lines: Sequence[bytes], first: int) -> None:
        self._lines = lines
        self._first = first
        self._at = 0
        self.prose: list[str] = []
        self.sections: list[Section] = []
        self.faults: list[Fault] = []
        # The lines that belong to hunks.
        self.body: list[int] = []

    def _line(self, ahead: int = 0) -> bytes:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else b""

    def _fault(self, message: str) -> None:
        self.faults.append(Fault(self._at + self._first, message))

    def run(self) -> None:
        while self._at < len(self._lines):
            if self._line().startswith(b"diff --git "):
                self._git()
            elif self._at_headers():
                self._plain()
            elif self._binary():
                names = _text(self._line())[len("Binary files ") : -len(" differ")]
                old, _, new = names.partition(" and ")
                here = self._at + self._first
                self._add(Section(here, _path(old), _path(new), Kind.BINARY))
                self._at += 1
            else:
                self._other()

    def _at_headers(self) -> bool:
        return self._line().startswith(b"--- ") and self._line(1).startswith(b"+++ ")

    def _binary(self) -> bool:
        line = self._line()
        return line.startswith(b"Binary files ") and line.endswith(b" differ")

    def _other(self) -> None:
        """Take a line that begins no section: prose, or a change that cannot be read."""
        line = self._line()
        for pattern, message in _LOST.items():
            # A sentence of a description can begin like that, before there is a diff.
            if re.match(pattern, line) and (self.sections or self._only_commands()):
                self._fault(message)
        if line.startswith(b"Index: ") and self._line(1).startswith(b"====") and not self._named():
            self._fault(f"{_text(line)}: no diff of it follows")
        if self.sections and _COMMIT.match(line):
            self._fault("several commits in one file; write them with git format-patch")
        if not self.sections:
            self.prose.append(_text(line))
        self._at += 1

    def _named(self) -> bool:
        """Tell whether a section follows the two lines that Subversion and quilt write."""
        return self._line(2).startswith((b"--- ", b"diff ", b"Binary files "))

    def _only_commands(self) -> bool:
        """Tell whether nothing but what `diff` writes came before."""
        ours = ("diff ", "Only in ", "Index: ", "===", "***", "---")
        return all(not line.strip() or line.startswith(ours) for line in self.prose)

    def _plain(self) -> None:
        """Read a section without git's header."""
        here = self._at + self._first
        old, new, gone = self._headers()
        hunks = self._hunks()
        if not hunks and old is not None:
            self.faults.append(Fault(here, f"{new or old} is named, and no hunk follows"))
            return
        self._add(_section(here, old, new, hunks, gone=gone))

    def _add(self, section: Section) -> None:
        if section.old is None and section.new is None:
            self.faults.append(Fault(section.line, "names no file"))
        else:
            self.sections.append(section)

    def _headers(self) -> tuple[str | None, str | None, bool]:
        """Read ``---`` and ``+++``; tell the paths, and whether the new file is not there."""
        old, new = _text(self._line())[4:], _text(self._line(1))[4:]
        self._at += 2
        return _path(old), _path(new), bool(_NO_TIME.search(new))

    def _git(self) -> None:
        """Read a section with git's header."""
        here = self._at + self._first
        names = _text(self._line())[len("diff --git ") :]
        old, new = _git_paths(names)
        self._at += 1
        told: dict[str, str] = {}
        while _text(self._line()).startswith(_HEADERS):
            line = _text(self._line())
            name = next(name for name in _HEADERS if line.startswith(name))
            told[name.strip()] = line[len(name) :]
            self._at += 1
        if "rename from" in told or "copy from" in told:
            before = told.get("rename from", told.get("copy from", ""))
            after = told.get("rename to", told.get("copy to", ""))
            old, new = _renamed(names, _path(before) or "", _path(after) or "")
        if "new file mode" in told:
            old = None
        if "deleted file mode" in told:
            new = None
        kind = _git_kind(told)
        mode = told.get("new mode", told.get("new file mode", ""))
        if self._binary() or self._line() == b"GIT binary patch":
            kind = Kind.BINARY
            self._skip_binary()
        hunks: tuple[ForeignHunk, ...] = ()
        if self._at_headers():
            first, second, _ = self._headers()
            if kind in (Kind.CHANGE, Kind.MODE, Kind.DELETE):
                old, new = first, second
            hunks = self._hunks()
        if hunks and kind is Kind.MODE:
            kind = Kind.CHANGE
        if not hunks and kind is Kind.CHANGE and (old is not None or not _is_empty(told)):
            self.faults.append(Fault(here, f"{new or old} is named, and no hunk follows"))
            return
        self._add(Section(here, old, new, kind, hunks, mode))

    def _skip_binary(self) -> None:
        self._at += 1
        while self._at < len(self._lines) and re.match(rb"literal |delta |\S+$|$", self._line()):
            self._at += 1

    def _hunks(self) -> tuple[ForeignHunk, ...]:
        hunks: list[ForeignHunk] = []
        while match := _HUNK.match(self._line()):
            start, old, _, new = (1 if n is None else int(n) for n in match.groups())
            self._at += 1
            hunks.append(ForeignHunk(len(hunks) + 1, start, self._hunk(old, new)))
            self._check_rest()
        return tuple(hunks)

    def _check_rest(self) -> None:
        """Find changes that a hunk's header does not count; context more does no harm."""
        ahead = 0
        while self._at + ahead < len(self._lines) and self._line(ahead)[:1] in (b"", b" "):
            ahead += 1
        line = self._line(ahead)
        # The header of the next file, and what ends a mail, begin so, too.
        other = line.startswith((b"--- ", b"+++ ")) or line in (b"-- ", b"--", b"---")
        if line[:1] in (b"+", b"-") and not other:
            self._fault("the hunk goes on where its header says that it ends")

    def _hunk(self, old: int, new: int) -> tuple[tuple[str, bytes], ...]:
        """Read as many lines as the hunk's header says."""
        lines: list[tuple[str, bytes]] = []
        while old > 0 or new > 0:
            if self._at == len(self._lines) and old == new <= _CUT_OFF:
                # An editor has taken blank lines off the end; they are held against the file.
                lines += [(" ", b"\n")] * old
                break
            line = self._line()
            mark = line[:1].decode("latin-1") or " "
            if self._at == len(self._lines) or mark not in " -+\\":
                self._fault(
                    f"the hunk ends before its header says ({old} old and {new} new lines are "
                    "missing): cut off, or wrapped by a mail program"
                )
                break
            self.body.append(self._at)
            self._at += 1
            if mark == "\\":
                self._unend(lines)
                continue
            old -= mark != "+"
            new -= mark != "-"
            lines.append((mark, line[1:] + b"\n"))
        if self._line().startswith(b"\\"):
            self._unend(lines)
            self._at += 1
        return tuple(lines)

    def _unend(self, lines: list[tuple[str, bytes]]) -> None:
        r"""Take the line end off the last line: ``\ No newline at end of file``."""
        if lines:
            mark, text = lines[-1]
            lines[-1] = (mark, text.removesuffix(b"\n"))


def _section(
    line: int,
    old: str | None,
    new: str | None,
    hunks: tuple[ForeignHunk, ...],
    *,
    gone: bool,
) -> Section:
    emptied = len(hunks) == 1 and not hunks[0].new
    kind = Kind.DELETE if new is None or (gone and emptied) else Kind.CHANGE
    return Section(line, old, new, kind, hunks)


def _is_empty(told: dict[str, str]) -> bool:
    """Tell whether a new file is empty, as far as its header says."""
    blob = told.get("index", "").rpartition("..")[2]
    return not blob or any(empty.startswith(blob) for empty in _EMPTY)


def _git_kind(told: dict[str, str]) -> Kind:
    modes = [mode for name, mode in told.items() if name.endswith("mode")]
    if any(mode.startswith("12") for mode in modes):
        return Kind.LINK
    if any(mode.startswith("16") for mode in modes):
        return Kind.SUBMODULE
    if "deleted file mode" in told:
        return Kind.DELETE
    if "rename from" in told:
        return Kind.RENAME
    if "copy from" in told:
        return Kind.COPY
    return Kind.MODE if "new mode" in told else Kind.CHANGE


def _text(line: bytes) -> str:
    return line.decode(errors="surrogateescape")


def _path(text: str) -> str | None:
    """Return the path in a header, without its time stamp; None for ``/dev/null``."""
    quoted = re.match(r'"(\\.|[^"\\])*"', text)
    path = _unquote(quoted[0]) if quoted else _STAMP.sub("", text)
    return None if path == "/dev/null" else path.strip()


def _unquote(text: str) -> str:
    r"""Read a name as git quotes it: ``"a/caf\303\251.py"``."""
    try:
        value = ast.literal_eval("b" + text)
    except (SyntaxError, ValueError):
        return text
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else text


def _renamed(names: str, old: str, new: str) -> tuple[str, str]:
    """Return both names of a file as the others are written: ``rename from`` has no ``a/``."""
    for at in (n for n, character in enumerate(names) if character == " "):
        before, after = _path(names[:at]) or "", _path(names[at + 1 :]) or ""
        if before.endswith(old) and after.endswith(new):
            return before, after
    return old, new


def _git_paths(text: str) -> tuple[str | None, str | None]:
    """Split ``a/x b/x`` of a line that quotes names only where they need it."""
    quoted = re.fullmatch(r'("(?:\\.|[^"\\])*") (.*)|(.*) ("(?:\\.|[^"\\])*")', text)
    if quoted:
        first, second, third, fourth = quoted.groups()
        return _path(first or third), _path(second or fourth)
    # Both are of one length but for a rename, whose names stand below.
    middle = len(text) // 2
    if text[middle : middle + 1] == " ":
        return _path(text[:middle]), _path(text[middle + 1 :])
    old, _, new = text.partition(" ")
    return _path(old), _path(new)
