"""Writes the diff of one file with as little context as makes each hunk unique."""

from __future__ import annotations

import difflib

from build_hooks.diffs.applier import occurrences
from build_hooks.diffs.model import DiffError, common_ends, split
from build_hooks.diffs.reader import parse


def make(path: str, before: bytes | None, after: bytes) -> str:
    """Write the diff of one file with as little context as makes each hunk unique.

    Args:
        path: The file, as ``vllm/...``.
        before: Its content; None if there is no such file.
        after: What it becomes.

    Returns:
        A diff that ``reader.parse`` accepts and ``applier.apply`` applies to ``before``; empty if
        nothing changes.

    Raises:
        DiffError: if no such diff tells the change: an added line ends in white space or has a
            carriage return, the path lies outside ``vllm/``.
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
        body = [_header(0, 0, 0, len(new)), *(_line("+", line) for line in new)] if new else []
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
    head, tail = common_ends(old, new)
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
    while len(occurrences(old, old[low:high])) > 1:
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
