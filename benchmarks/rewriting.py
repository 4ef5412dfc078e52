"""Rewriting installed files in every worker, under a lock, against the overlay's finder.

Both do the same work: N processes start at once, and each ends up with the code of every patched
module. On a scratch copy of vLLM's sources; nothing of vLLM is executed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import wheels
from benchmarks.context import Context, python, site_packages, variables
from benchmarks.measure import Figure, alternate
from benchmarks.subject import Subject

WORKERS = (1, 8, 32)
_REWRITE, _SERVE = "files rewritten under a lock", "overlay"


def measure(context: Context) -> list[Figure]:
    """Measure the first start in a fresh installation, and each that follows."""
    modules = wheels.patched(context)
    homes = {way: _copy(context, name) for name, way in (("re", _REWRITE), ("ov", _SERVE))}
    install = ["pip", "install", "--quiet", "--no-deps", "--python"]
    context.uv(*install, homes[_SERVE], context.overlay)
    edits = context.scratch / "edits.json"
    edits.write_text(json.dumps({path: _edits(*pair) for path, pair in modules.items()}))
    figures = []
    for count in WORKERS[:2] if context.quick else WORKERS:
        for first in (True, False):
            ways = {
                way: _start(context, way, home, count, edits, modules, first=first)
                for way, home in homes.items()
            }
            taken = alternate(ways, context.rounds(7 if count < max(WORKERS) else 4))
            when = "first start" if first else "later start"
            processes = "1 process" if count == 1 else f"{count} processes"
            figures.append(Figure(f"{processes}, {when}", "ms", taken["ms"]))
    return figures


def _copy(context: Context, name: str) -> Path:
    """Make an environment with the Python sources of vLLM, and nothing else."""
    home = context.environment(f"copy-{name}", python(context.plain))
    source = site_packages(context.plain)
    for file in (source / "vllm").rglob("*.py"):
        target = site_packages(home) / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return home


def _edits(stock: bytes, served: bytes) -> list[tuple[str, str]]:
    """Give the pieces of text to replace, each with the lines around it."""
    old, new = (text.decode().splitlines(keepends=True) for text in (stock, served))
    groups = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_grouped_opcodes(3)
    edits = [("".join(old[g[0][1] : g[-1][2]]), "".join(new[g[0][3] : g[-1][4]])) for g in groups]
    text = stock.decode()
    for before, after in edits:
        text = text.replace(before, after)
    if text != served.decode():
        raise ValueError("the texts to replace do not make the served file")
    return edits


def _start(
    context: Context,
    way: str,
    home: Path,
    count: int,
    edits: Path,
    modules: Mapping[str, tuple[bytes, bytes]],
    *,
    first: bool,
) -> Callable[[], Mapping[str, float]]:
    site = site_packages(home)
    arguments: dict[str, Any] = {
        "site": str(site),
        "edits": str(edits) if way == _REWRITE else None,
        "lock": str(home / "lock"),
        "modules": list(modules),
    }

    def start() -> Mapping[str, float]:
        if first:
            for cache in site.rglob("__pycache__"):
                shutil.rmtree(cache)
            for path, (stock, _) in modules.items():
                (site / path).write_bytes(stock)
        with contextlib.ExitStack() as stack:
            subjects = [
                stack.enter_context(
                    Subject(
                        python(home),
                        "worker.py",
                        variables(),
                        context.log(f"worker-{n}"),
                        **arguments,
                    )
                )
                for n in range(count)
            ]
            for subject in subjects:
                subject.receive()
            started = time.perf_counter()
            for subject in subjects:
                subject.send()
            loaded = {subject.receive() for subject in subjects}
            taken = time.perf_counter() - started
        if loaded != {len(modules)}:
            raise RuntimeError(f"{way}: of {len(modules)} modules, workers got {loaded} patched")
        return {"ms": 1e3 * taken}

    return start
