"""What can go wrong in a build. Every message says what, where, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BuildError(Exception):
    """A build that cannot go on. Its text is for the person who started it."""


class BaseError(BuildError):
    """The base vLLM cannot be had, or is not what it says it is."""


class PartialFetchError(Exception):
    """The index does not let a wheel be read in parts. Its text is the reason.

    The build goes on: the whole wheel is fetched.
    """


class LockError(BuildError):
    """A locked release does not reproduce its lock."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the queue.

    Attributes:
        file: The file, relative to the queue.
        field: The field or the line in it; empty for the file as a whole.
        message: What is wrong.
    """

    file: str
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.field}" if self.field else self.file
        return f"{where}: {self.message}"


class QueueError(BuildError):
    """The queue breaks its format; all problems are listed at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [f"The patch queue has {_count(len(problems), 'problem')}:"]
        lines += [f"  {problem}" for problem in problems]
        lines.append("Correct them, then run: python -m build_hooks lint")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Conflict:
    """One place at which a patch does not apply.

    Attributes:
        patch: The id of the patch.
        variant: The release of the variant that the file's diff is from.
        file: The file of the base; empty for the patch as a whole.
        hunk: The hunk, counted from 1 within the file; 0 stands for the file as a whole.
        message: What is wrong.
        detail: More lines on it: those of the base that are nearest, or a compiler's message.
        other: The earlier patch that stands against this one; empty where the base does.
        undoes: Whether the hunk fits, and would undo what that patch did.
        ports: Whether carrying the patch over from another release can resolve it.
    """

    patch: str
    variant: str
    file: str
    hunk: int
    message: str
    detail: str = ""
    other: str = ""
    undoes: bool = False
    ports: bool = True

    def __str__(self) -> str:
        hunk = f", hunk {self.hunk}" if self.hunk else ""
        where = f"{self.file}{hunk}: " if self.file else ""
        text = f"{self.patch} ({self.variant}.patch): {where}{self.message}"
        return "\n".join([text, *(f"    {line}" for line in self.detail.splitlines())])


class ConflictError(BuildError):
    """Patches that do not apply to a base; all conflicts are listed at once.

    Args:
        base: What the base is called.
        conflicts: Every conflict.
        hint: What to run next; empty where the conflicts say it.
    """

    def __init__(self, base: str, conflicts: Sequence[Conflict], hint: str) -> None:
        self.conflicts = tuple(conflicts)
        lines = [f"{_count(len(conflicts), 'conflict')} with {base}; nothing was built:"]
        lines += [f"  {conflict}" for conflict in conflicts]
        lines += [hint] if hint else []
        super().__init__("\n".join(lines))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def refusal(error: OSError) -> str:
    """Say in one line what the system refused.

    Args:
        error: What Python raised for it.

    Returns:
        The file, if it is known, and the reason.
    """
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
