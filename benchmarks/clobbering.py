"""An overlay wheel that owns files of vLLM's: what an import gets after each step of its life."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import wheels
from benchmarks.context import Context, python, site_packages, variables
from benchmarks.measure import Table, progress

# What each module would be loaded from, by the finders of that interpreter; nothing is executed.
_CENSUS = """\
import hashlib, json, sys
from pathlib import Path
site = Path(sys.argv[1])
found = {}
for path in json.loads(sys.argv[2]):
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    where = [str((site / path).parent)]
    specs = (f.find_spec(name, where) for f in sys.meta_path if hasattr(f, "find_spec"))
    spec = next((s for s in specs if s is not None), None)
    data = Path(spec.origin).read_bytes() if spec and spec.origin else None
    found[path] = data and hashlib.sha256(data).hexdigest()
print(json.dumps(found))
"""


def measure(context: Context) -> Table:
    """Take both kinds of overlay through their lives under pip and uv, a few times."""
    modules = wheels.patched(context)
    out = context.fresh("clobbering")
    release = context.release
    vllm = wheels.write(out, "vllm", release, {p: s for p, (s, _) in modules.items()})
    clobber = [
        wheels.write(out, "vllm_clobber", f"{release}.{n}", {p: s for p, (_, s) in modules.items()})
        for n in (1, 2)
    ]
    ours = [context.overlay, wheels.revised(context.overlay, out)]
    kinds = {"a wheel that owns vLLM's files": clobber, "vllm-nemo": ours}
    rows = []
    rounds = context.rounds(3)
    for tool in ("pip", "uv"):
        for kind, (first, second) in kinds.items():
            progress(f"  {kind}, {tool}")
            lives = [_life(context, tool, vllm, first, second, modules) for _ in range(rounds)]
            rows += [
                [tool, kind, step, *_range([life[step] for life in lives])] for step in lives[0]
            ]
    return Table(
        f"What an import gets of the {len(modules)} patched modules, in {rounds} tries each",
        ("installer", "overlay", "after", "patched", "stock", "nothing"),
        rows,
    )


def _life(
    context: Context,
    tool: str,
    vllm: Path,
    first: Path,
    second: Path,
    modules: Mapping[str, tuple[bytes, bytes]],
) -> dict[str, tuple[int, int, int]]:
    home = context.environment("life")
    uv = context.tools.with_name("uv")
    pip: list[str | Path] = [context.tools, "-m", "pip", "--python", home, "--quiet"]
    install: dict[str, list[str | Path]] = {
        "pip": [*pip, "install", "--no-deps", "--no-index"],
        "uv": [uv, "pip", "install", "--quiet", "--no-deps", "--no-index", "--python", home],
    }
    uninstall: dict[str, list[str | Path]] = {
        "pip": [*pip, "uninstall", "--yes"],
        "uv": [uv, "pip", "uninstall", "--quiet", "--python", home],
    }
    again = {"pip": "--force-reinstall", "uv": "--reinstall"}
    name = first.name.partition("-")[0].replace("_", "-")
    steps: dict[str, list[str | Path]] = {
        "installing both at once": [*install[tool], vllm, first],
        "an upgrade of the overlay": [*install[tool], second],
        "a reinstallation of vLLM": [*install[tool], again[tool], vllm],
        "uninstalling the overlay": [*uninstall[tool], name],
    }
    told = {}
    for step, command in steps.items():
        _run(command)
        told[step] = _census(home, modules)
    return told


def _census(home: Path, modules: Mapping[str, tuple[bytes, bytes]]) -> tuple[int, int, int]:
    command: list[str | Path] = [
        python(home),
        "-c",
        _CENSUS,
        site_packages(home),
        json.dumps(list(modules)),
    ]
    found = json.loads(_run(command))
    counts = [0, 0, 0]
    for path, (stock, served) in modules.items():
        kinds = [hashlib.sha256(served).hexdigest(), hashlib.sha256(stock).hexdigest(), None]
        counts[kinds.index(found[path])] += 1
    return counts[0], counts[1], counts[2]


def _range(counts: Sequence[tuple[int, int, int]]) -> list[str]:
    columns = [sorted(set(column)) for column in zip(*counts, strict=True)]
    return [str(c[0]) if len(c) == 1 else f"{c[0]} to {c[-1]}" for c in columns]


def _run(command: Sequence[str | Path]) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=variables(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
