"""Pages that are made from the queue and the locks: one a patch, and the README's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build_hooks.errors import BuildError
from build_hooks.shared import outcomes
from build_hooks.upkeep import status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from build_hooks.project import Project
    from build_hooks.queues.model import Patch, Queue, Upstream
    from build_hooks.upkeep.status import Cell

_BEGIN, _END = b"<!-- table -->", b"<!-- end of table -->"


def pages(queue: Queue, project: Project) -> dict[Path, bytes]:
    """Make each generated file.

    Args:
        queue: The queue.
        project: The project, whose README has a line that begins the table and one that ends it.

    Returns:
        The contents by path.

    Raises:
        BuildError: if the README has no place for its table, or more than one.
        OSError: if it cannot be read.
    """
    cells = status.from_locks(queue)
    made = {
        project.pages / f"{patch.id}.md": _page(
            patch, [cell for cell in cells if cell.patch == patch.id]
        ).encode()
        for patch in queue.patches
    }
    links = project.pages.relative_to(project.root).as_posix()
    tables = f"\n{_patches(queue, cells, links)}\n\n{_supported(queue, cells)}\n\n"
    made[project.readme] = _with_table(project.readme, tables.encode())
    return made


def _patches(queue: Queue, cells: Sequence[Cell], links: str) -> str:
    """Make the table of what one gets, a row a patch."""
    rows = []
    for patch in queue.patches:
        applied = [c.base for c in cells if c.patch == patch.id and c.outcome == outcomes.APPLIED]
        upstream = ", ".join(f"[{u.ref.rpartition('/')[2]}]({u.url})" for u in patch.upstream[:2])
        switch = patch.switch if patch.switch == "always" else f"`{patch.switch}`"
        page = f"[{patch.id}]({links}/{patch.id}.md)"
        rows.append((page, patch.title.rstrip("."), switch, _range(applied, queue), upstream))
    return _table(("patch", "what you get", "switch", "vLLM", "upstream"), rows)


def _range(applied: Sequence[str], queue: Queue) -> str:
    """Name the releases that have a patch: as a range where there is no gap."""
    known = [str(release) for release in queue.releases]
    if not applied:
        return "none"
    first, last = known.index(applied[0]), known.index(applied[-1])
    if known[first : last + 1] != list(applied):
        return ", ".join(applied)
    return applied[0] if first == last else f"{applied[0]} to {applied[-1]}"


def _supported(queue: Queue, cells: Sequence[Cell]) -> str:
    """Make the table of the releases: how many patches each has, and how they are proven."""
    rows = []
    for release in queue.releases:
        level = queue.proven(release)
        mine = [c for c in cells if c.base == str(release) and c.outcome == outcomes.APPLIED]
        others: dict[str, list[str]] = {}
        for cell in mine:
            if cell.level != level:
                others.setdefault(cell.level, []).append(cell.patch)
        told = [f"{', '.join(ids)} by {other}" for other, ids in others.items()]
        proven = "; ".join([level, *told])
        rows.append((str(release), f"{len(mine)} of {len(queue.patches)}", proven))
    return _table(("vLLM", "patches", "proven by"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(status.markdown_row(line) for line in lines)


def stale(made: Mapping[Path, bytes], project: Project) -> list[Path]:
    """Find the generated files that are not what they should be, and those left over.

    Args:
        made: What ``pages`` returned.
        project: The project.

    Returns:
        The files: those to be written, then those to be removed.

    Raises:
        OSError: if one of them is there and cannot be read.
    """
    wrong = [path for path, data in made.items() if not path.exists() or path.read_bytes() != data]
    return wrong + [path for path in sorted(project.pages.glob("*.md")) if path not in made]


def _with_table(readme: Path, table: bytes) -> bytes:
    lines = readme.read_bytes().splitlines(keepends=True)
    marks = [number for number, line in enumerate(lines) if line.strip() in (_BEGIN, _END)]
    if [lines[number].strip() for number in marks] != [_BEGIN, _END]:
        raise BuildError(
            f"{readme} needs one line {_BEGIN.decode()!r} and one {_END.decode()!r} below it: the "
            "table of patches goes between them"
        )
    begin, end = marks
    return b"".join([*lines[: begin + 1], table, *lines[end:]])


def _page(patch: Patch, cells: Iterable[Cell]) -> str:
    sections = [
        f"# {patch.id}",
        "<!-- Made from patch.toml by `python -m build_hooks docs`. -->",
        f"{patch.title.rstrip('.')}.",
        f"## Why\n\n{patch.why}",
        f"## Risk\n\n{patch.risk}",
        f"## Switch\n\n{_switch(patch.switch)}",
        f"## Releases\n\nNeeded for vLLM `{patch.vllm}`.\n\n{_releases(cells)}",
        f"## When it can go\n\n{patch.removal}",
    ]
    if patch.logic:
        sections.insert(5, f"## Logic in the diff\n\n{patch.logic}")
    if patch.upstream:
        listed = "\n".join(_reference(reference) for reference in patch.upstream)
        sections.append(f"## Upstream\n\n{listed}")
    return "\n\n".join(sections) + "\n"


def _reference(upstream: Upstream) -> str:
    remarks = [upstream.note.rstrip(".")] if upstream.note else []
    if upstream.fixed_in:
        remarks.append(f"first release with it: {upstream.fixed_in}")
    told = f": {'; '.join(remarks)}" if remarks else ""
    return f"- [{upstream.ref}]({upstream.url}) ({upstream.kind}){told}"


def _switch(switch: str) -> str:
    if switch == "always":
        return "None: it is on wherever the overlay is."
    return f"Off unless `{switch}` is set at run time."


def _releases(cells: Iterable[Cell]) -> str:
    rows = [(c.base, c.outcome.replace("-", " "), c.level, c.remark) for c in cells]
    return _table(("vLLM", "outcome", "proven by", "remark"), rows)
