"""What a unified diff says: the files that it changes, and their hunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Far above any patch of a queue whose diffs are hooks of a few lines.
MAXIMUM_BYTES = 1 << 20


class DiffError(ValueError):
    """A text that is not a diff this project accepts: (line, message) for each fault."""

    def __init__(self, faults: Sequence[tuple[int, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"line {line}: {message}" for line, message in faults))


@dataclass(frozen=True)
class Hunk:
    """One change, whose old lines must occur in the file once.

    As for ``git apply``, a hunk that starts at line 1 must begin the file, and one without a line
    of context after its last change must end it.

    Attributes:
        start: The line at which the old lines are expected, counted from 1.
        old: The lines before, with context.
        new: The lines after, with context.
        ends_file: Whether no context follows the last change.
    """

    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    ends_file: bool = False


@dataclass(frozen=True)
class FileDiff:
    """The hunks of one file, in order.

    Attributes:
        path: The file, as ``vllm/...``.
        added: Whether the file does not exist before.
        hunks: Its changes; a new file that is empty has none.
        text: The part of the diff that says so, as it was read; empty for a diff made otherwise.
    """

    path: str
    added: bool
    hunks: tuple[Hunk, ...]
    text: bytes = field(default=b"", compare=False, repr=False)

    def same_change(self, other: FileDiff) -> bool:
        """Tell whether two diffs make the same change, at whatever lines they expect it.

        Args:
            other: The other diff.
        """
        return (self.path, self.added, self._changes()) == (
            other.path,
            other.added,
            other._changes(),
        )

    def _changes(self) -> list[tuple[object, ...]]:
        return [(h.old, h.new, h.start == 1, h.ends_file) for h in self.hunks]

    def reversed(self) -> FileDiff:
        """Return the diff that takes this one back, expected at the same lines."""
        return FileDiff(
            self.path,
            self.added,
            tuple(Hunk(h.start, h.new, h.old, h.ends_file) for h in self.hunks),
        )


def split(content: bytes) -> list[bytes]:
    r"""Split a content into lines, each with its ``\n``; no other byte ends a line.

    Args:
        content: Any bytes.

    Returns:
        The lines; joined, they are the content.
    """
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def common_ends(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, int]:
    """Count the lines that two contents share at their ends, none of them twice.

    Args:
        old: The lines of one.
        new: The lines of the other.

    Returns:
        How many they share at the beginning, and how many of the rest at the end.
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail
