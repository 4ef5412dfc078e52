"""Resolves the conflicts of a merge that a person would resolve without a thought.

Each block has three sides: the new release, the old one, and the patch. A change of the patch is
placed by an anchor on one side of it, imports by the names that they import. Where both sides have
put statements into one place, the new release's come first. Each of these is a guess, which the
caller shows and has a person confirm.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import re
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from build_hooks.review import source
from build_hooks.upkeep.merge import ANCESTOR, NEW, PATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_IMPORT = re.compile(rb"(?:from|import) +([\w.]+)[^(\\]*$")
_NAME = re.compile(rb"\s+(\w+)(?: as \w+)?,$")


@dataclass(frozen=True)
class _Block:
    """One conflict: its lines in the new release, in the old one, and in the patch.

    Before it and behind it stand lines that all sides share, None at the ends of the file.
    """

    new: tuple[bytes, ...]
    old: tuple[bytes, ...]
    patch: tuple[bytes, ...]
    # As it is marked.
    text: tuple[bytes, ...]
    before: bytes | None = None
    behind: bytes | None = None

    @property
    def context(self) -> tuple[bytes, ...]:
        """The new side between its neighbours."""
        before = () if self.before is None else (self.before,)
        behind = () if self.behind is None else (self.behind,)
        return (*before, *self.new, *behind)


def resolve(merged: bytes, new: bytes) -> tuple[bytes, list[str]]:
    """Resolve what can be resolved in a merged file.

    Args:
        merged: The file, with conflict markers.
        new: The file of the new release.

    Returns:
        The file, with the markers of the other blocks; and for a person, what was placed where.
    """
    lines: list[bytes] = []
    notes = []
    parts = [*_parts(merged.split(b"\n")), None]
    for part, following in itertools.pairwise(parts):
        if not isinstance(part, _Block):
            lines += [] if part is None else [part]
            continue
        behind = following if isinstance(following, bytes) else None
        block = replace(part, before=lines[-1] if lines else None, behind=behind)
        found = _resolved(block, new)
        if found is None:
            lines += part.text
        else:
            resolved, why = found
            notes.append(f"line {len(lines) + 1}: {why}")
            lines += resolved
    return b"\n".join(lines), notes


def _parts(lines: Sequence[bytes]) -> Iterator[bytes | _Block]:
    """Go through a merged file: lines outside of conflicts, and conflicts."""
    sides: list[list[bytes]] = []
    text: list[bytes] = []
    marks = [b"<<<<<<< " + NEW, b"||||||| " + ANCESTOR, b"=======", b">>>>>>> " + PATCH]
    for line in lines:
        if line == marks[len(sides)]:
            sides.append([])
            text.append(line)
            if len(sides) == len(marks):
                ours, old, theirs = (tuple(side) for side in sides[:3])
                yield _Block(ours, old, theirs, tuple(text))
                sides, text = [], []
        elif sides:
            sides[-1].append(line)
            text.append(line)
        else:
            yield line
    yield from text


def _resolved(block: _Block, new: bytes) -> tuple[list[bytes], str] | None:
    """Resolve one block; None if that needs a person."""
    for rule in (_imports, _side_by_side, _anchored):
        found = rule(block, new)
        if found is not None:
            return found
    return None


def _imports(block: _Block, _new: bytes) -> tuple[list[bytes], str] | None:
    """Place imports by what they import, not by their neighbours."""
    lines = [line for side in (block.new, block.old, block.patch) for line in side]
    for form in (_IMPORT, _NAME):
        if all(form.match(line) for line in lines):
            break
    else:
        return None
    removed = [line for line in _without(block.old, block.patch) if line in block.new]
    made = _without(block.new, removed)
    added = [line for line in _without(block.patch, block.old) if line not in made]
    for line in added:
        after = [at for at, there in enumerate(made) if _key(form, there) <= _key(form, line)]
        made.insert(after[-1] + 1 if after else 0, line)
    told = [f"{_said(added)} was placed"] if added else []
    told += [f"{_said(removed)} was taken out"] if removed else []
    return made, f"imports, by what they import: {' and '.join(told) or 'both sides agree'}"


def _without(lines: Sequence[bytes], others: Sequence[bytes]) -> list[bytes]:
    return [line for line in lines if line not in others]


def _key(form: re.Pattern[bytes], line: bytes) -> bytes:
    found = form.match(line)
    return found[1] if found else b""


def _side_by_side(block: _Block, _new: bytes) -> tuple[list[bytes], str] | None:
    """Keep what both sides have put into one place, if each is whole statements."""
    if block.old or not (_is_whole(block.new) and _is_whole(block.patch)):
        return None
    if _indent(block.new) != _indent(block.patch):
        return None
    if _bound(block.new) & _bound(block.patch):
        # Both give a name its value: perhaps both do the same thing.
        return None
    why = f"{_said(block.patch)} comes after {_said(block.new)}, which is new: is that the order?"
    return [*block.new, *block.patch], why


def _is_whole(lines: Sequence[bytes]) -> bool:
    """Tell whether lines are statements, none of them cut."""
    return bool(_parsed(lines).body)


def _parsed(lines: Sequence[bytes]) -> ast.Module:
    text = textwrap.dedent(b"\n".join(lines).decode(errors="surrogateescape"))
    return source.parse(text.encode(errors="surrogateescape"))


def _bound(lines: Sequence[bytes]) -> set[str]:
    """Return the names and attributes that statements give a value, or define."""
    found = set()
    for node in ast.walk(_parsed(lines)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def _indent(lines: Sequence[bytes]) -> int:
    return min(len(line) - len(line.lstrip()) for line in lines if line.strip())


def _anchored(block: _Block, new: bytes) -> tuple[list[bytes], str] | None:
    """Make each change of the patch where an anchor of it still stands, once in its function."""
    scope = _scope(block, new)
    if scope is None:
        return None
    edits: list[tuple[int, int, list[bytes]]] = []
    whys = []
    matcher = difflib.SequenceMatcher(None, block.old, block.patch, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        added = list(block.patch[start:end])
        place = _replaced(block, scope, first, last) if last > first else None
        if last == first:
            place = _inserted(block, scope, first)
        if place is None or (edits and place[0] < edits[-1][1]):
            return None
        at, until, why = place
        edits.append((at, until, added))
        whys.append(f"{_said(added)} {why}" if added else why)
    made = list(block.new)
    for at, until, added in reversed(edits):
        made[at:until] = added
    return made, "; ".join(whys)


def _scope(block: _Block, new: bytes) -> list[bytes] | None:
    """Return the lines of the function that a block lies in, in the new release; None if unsure."""
    lines, size = new.split(b"\n"), len(block.context)
    places = [at for at in range(len(lines)) if tuple(lines[at : at + size]) == block.context]
    if len(places) != 1:
        return None
    first = places[0] + 1
    around = [
        (one.last - one.first, one)
        for one in source.functions(new).values()
        if one.first <= first and first + size - 1 <= one.last
    ]
    if not around:
        return None
    _, inner = min(around, key=lambda pair: pair[0])
    return lines[inner.first - 1 : inner.last]


def _replaced(
    block: _Block, scope: Sequence[bytes], first: int, last: int
) -> tuple[int, int, str] | None:
    """Find the old lines of a change, as they are, once."""
    removed, size = block.old[first:last], last - first
    if not any(line.strip() for line in removed):
        return None
    everywhere = [at for at in range(len(scope)) if tuple(scope[at : at + size]) == removed]
    here = [at for at in range(len(block.new)) if block.new[at : at + size] == removed]
    if len(everywhere) != 1 or len(here) != 1:
        return None
    return here[0], here[0] + size, f"replaces {_said(removed)}"


def _inserted(block: _Block, scope: Sequence[bytes], at: int) -> tuple[int, int, str] | None:
    """Find the line before or the line behind an insertion, once."""
    before = block.old[at - 1] if at else block.before
    behind = block.old[at] if at < len(block.old) else block.behind
    after = _once(before, block, scope, outside=-1 if not at else None)
    front = _once(behind, block, scope, outside=len(block.new) if at == len(block.old) else None)
    if after is not None and front is not None:
        # Between the two, upstream has put lines of its own: their order is not ours to choose.
        if after + 1 != front:
            return None
        return front, front, f"stands between {_said([before or b''])} and {_said([behind or b''])}"
    if after is not None:
        return after + 1, after + 1, f"was put behind {_said([before or b''])}"
    if front is not None:
        return front, front, f"was put before {_said([behind or b''])}"
    return None


def _once(
    line: bytes | None, block: _Block, scope: Sequence[bytes], *, outside: int | None
) -> int | None:
    """Return where a line stands in the new side of a block, if it stands once in its function.

    A line beside the block stands where ``outside`` says.
    """
    if line is None or not re.search(rb"\w", line) or list(scope).count(line) != 1:
        return None
    if outside is not None:
        return outside
    return block.new.index(line) if line in block.new else None


def _said(lines: Sequence[bytes]) -> str:
    """Name lines by the first that says something."""
    spoken = [line for line in lines if line.strip()] or list(lines[:1])
    text = spoken[0].strip().decode(errors="backslashreplace") if spoken else ""
    more = f" (and {len(spoken) - 1} more)" if len(spoken) > 1 else ""
    return f"{text!r}{more}"
