"""A full fork, shipped as a wheel, against the overlay: bytes, time to install, disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.context import Context, python, site_packages, variables
from benchmarks.measure import MIB, Figure, Table, alternate, timed


def measure(context: Context) -> tuple[list[Figure], Table]:
    """Install both wheels without their requirements, each into an empty environment."""
    fork, overlay = "a fork: vLLM's wheel", "vllm-nemo"
    wheel = {overlay: context.overlay, fork: context.base()}
    disk: dict[str, int] = {}
    figures = []
    for tool in ("uv", "pip"):
        ways = {way: _install(context, tool, way, path, disk) for way, path in wheel.items()}
        taken = alternate(ways, context.rounds(3) if tool == "uv" else 2, warm_up=0)
        figures.append(Figure(f"{tool} install, no cache", "s", taken["s"]))
    rows = [
        [way, f"{path.stat().st_size / MIB:.2f}", f"{disk[way] / MIB:.1f}"]
        for way, path in wheel.items()
    ]
    return figures, Table("Sizes", ("", "wheel, MiB", "installed by uv, MiB"), rows)


def _install(
    context: Context, tool: str, way: str, wheel: Path, disk: dict[str, int]
) -> Callable[[], Mapping[str, float]]:
    uv = context.tools.with_name("uv")

    def install() -> Mapping[str, float]:
        home = context.environment("fork")
        commands: dict[str, list[str | Path]] = {
            "uv": [uv, "pip", "install", "--quiet", "--no-cache", "--python", home],
            "pip": [context.tools, "-m", "pip", "--python", python(home), "install", "--quiet"],
        }
        command = [*commands[tool], "--no-deps", "--no-index", wheel]
        empty = _disk(site_packages(home))
        taken = timed(lambda: subprocess.run(command, env=variables(), check=True))
        if tool == "uv":
            disk[way] = _disk(site_packages(home)) - empty
        context.fresh("fork")
        return taken

    return install


def _disk(root: Path) -> int:
    return sum(
        (Path(directory) / name).lstat().st_blocks * 512
        for directory, _, names in os.walk(root)
        for name in names
    )
