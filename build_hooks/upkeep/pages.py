"""Pages that are made from the queue and the locks: one a patch, and the README's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build_hooks.errors import BuildError
from build_hooks.upkeep import status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from build_hooks.project import Project
    from build_hooks.queues.model import Patch, Queue, Upstream
    from build_hooks.upkeep.status import Cell

_BEGIN, _END = b"<!-- table -->", b"<!-- end of table -->"


def pages(queue: Queue, project: Project) -> dict[Path, bytes]:
    """Return each generated file and what it should contain.

    Args:
        queue: The queue.
        project: The project, whose README has a line that begins the table and one that ends it.

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
    table = status.as_markdown(cells, links=f"{links}/")
    made[project.readme] = _with_table(project.readme, f"\n{table}\n".encode())
    return made


def stale(made: Mapping[Path, bytes], project: Project) -> list[Path]:
    """Return the generated files that are not what they should be, and those left over.

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
    rows = [(cell.base, cell.outcome.replace("-", " "), cell.remark) for cell in cells]
    lines = [("vLLM", "outcome", "remark"), ("---", "---", "---"), *rows]
    return "\n".join(status.markdown_row(line) for line in lines)
