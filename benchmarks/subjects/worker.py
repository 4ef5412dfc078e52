"""A worker that starts: it gets the code of every patched module, and executes none of it.

Arguments: ``site`` (the packages), ``modules`` (paths), ``edits`` (a JSON file: for each path the
texts to replace; the worker then rewrites the installed files itself, under ``lock``). Answers with
how many modules' code was compiled from a patched file.
"""

from __future__ import annotations

# Not all of these are used: torch, which vLLM imports first, brings what the overlay needs.
import dataclasses  # noqa: F401
import fcntl
import hashlib  # noqa: F401
import importlib.metadata  # noqa: F401
import json
import sys
from pathlib import Path

import answers

given = answers.ARGUMENTS
site = Path(given["site"])


def rewrite() -> None:
    """Rewrite what is not rewritten yet, one worker at a time."""
    wanted = json.loads(Path(given["edits"]).read_text())
    with Path(given["lock"]).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path, edits in wanted.items():
            before = text = (site / path).read_text()
            for old, new in edits:
                if new not in text:
                    text = text.replace(old, new)
            if text != before:
                (site / path).write_text(text)


def load() -> int:
    """Get the code of every module through this interpreter's finders."""
    patched = 0
    find("vllm", str(site))
    for path in given["modules"]:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        spec = find(name, str((site / path).parent))
        spec.loader.get_code(name)
        # Each served file ends with a notice; the texts to replace bring it along.
        with open(spec.origin, "rb") as file:  # noqa: PTH123
            file.seek(-2000, 2)
            patched += b"vllm-nemo" in file.read()
    return patched


def find(name: str, directory: str):  # noqa: ANN201 - a ModuleSpec
    """Ask the finders in their order, without importing the parents of a name."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, [directory])
        if spec is not None:
            return spec
    raise ModuleNotFoundError(name)


def start() -> int:
    """Do what a worker does before it can run."""
    if given["edits"]:
        rewrite()
    return load()


answers.serve(start)
