"""Pages that are made from the queue and the locks: one a patch, and the README's table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from build_hooks import status
from build_hooks.assemble import APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from build_hooks.queue import Patch, Queue
    from build_hooks.status import Cell

_PAGES = "docs/patches"
_MARKS = re.compile(r"(<!-- table -->\n).*?(<!-- end of table -->\n)", re.DOTALL)


def pages(queue: Queue, root: Path) -> dict[Path, str]:
    """Return each generated file and what it should contain."""
    cells = status.from_locks(queue)
    made = {
        root / _PAGES / f"{patch.id}.md": _page(
            patch, [cell for cell in cells if cell.patch == patch.id]
        )
        for patch in queue.patches
    }
    readme = root / "README.md"
    table = f"\n{status.as_markdown(cells, links=f'{_PAGES}/')}\n"
    made[readme] = _MARKS.sub(rf"\1{table}\2", readme.read_text(encoding="utf-8"))
    return made


def stale(made: dict[Path, str], root: Path) -> list[Path]:
    """Return the generated files that are not what they should be, and those left over."""
    wrong = [
        path
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    return wrong + [path for path in sorted((root / _PAGES).glob("*.md")) if path not in made]


def _page(patch: Patch, cells: Iterable[Cell]) -> str:
    sections = [
        f"# {patch.id}",
        "<!-- Made from patch.toml by `python -m build_hooks docs`. -->",
        f"{patch.title}.",
        f"## Why\n\n{patch.why}",
        f"## Risk\n\n{patch.risk}",
        f"## Switch\n\n{_switch(patch.switch)}",
        f"## Releases\n\nNeeded for vLLM `{patch.vllm}`.\n\n{_releases(cells)}",
        f"## When it can go\n\n{patch.removal}",
    ]
    if patch.logic:
        sections.insert(5, f"## Logic in the diff\n\n{patch.logic}")
    if patch.upstream:
        listed = "\n".join(
            f"- [{reference.ref}]({reference.url}) ({reference.kind})"
            + (f": {reference.note}" if reference.note else "")
            + (f" First release with it: {reference.fixed_in}." if reference.fixed_in else "")
            for reference in patch.upstream
        )
        sections.append(f"## Upstream\n\n{listed}")
    return "\n\n".join(sections) + "\n"


def _switch(switch: str) -> str:
    if switch == "always":
        return "None: it is on wherever the overlay is."
    return f"Off unless `{switch}` is set at run time."


def _releases(cells: Iterable[Cell]) -> str:
    lines = ["| vLLM | outcome | remark |", "| --- | --- | --- |"]
    lines += [f"| {cell.base} | {_word(cell.outcome)} | {cell.remark} |" for cell in cells]
    return "\n".join(lines)


def _word(outcome: str) -> str:
    return outcome if outcome == APPLIED else outcome.replace("-", " ")
