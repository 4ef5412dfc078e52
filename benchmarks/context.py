"""What all sections measure with: one release, its environments, wheels and a scratch directory."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

# Inherited settings that could change what is measured.
_SCRUBBED = ("NRL_", "VLLM_", "PYTHON", "RAY_", "TORCH", "VIRTUAL_ENV")

_ENGINE_SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": str(os.cpu_count() or 1),
    # A random one makes a process faster or slower than its like, for as long as it lives.
    "PYTHONHASHSEED": "0",
    # The engine runs in the process that is measured.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclasses.dataclass(frozen=True)
class Context:
    """The subject of one run.

    Attributes:
        release: The vLLM release.
        releases: All supported releases.
        tools: The interpreter of the build's environment, with pip and uv.
        overlaid: The root of an environment with vLLM (on a CPU) and the overlay.
        plain: The root of one that is alike, without the overlay.
        overlay: The overlay's wheel.
        wheels: A directory with the wheel of every supported release.
        scratch: An empty directory; removed after the run.
        kept: A directory for caches and logs, which stays.
        quick: Whether only to see that all works: few rounds, small sizes.
    """

    release: str
    releases: tuple[str, ...]
    tools: Path
    overlaid: Path
    plain: Path
    overlay: Path
    wheels: Path
    scratch: Path
    kept: Path
    quick: bool

    def rounds(self, wanted: int) -> int:
        """Return how many rounds to take."""
        return 2 if self.quick else wanted

    def base(self, release: str | None = None) -> Path:
        """Return the wheel of a release as it is on the index."""
        return next(iter(sorted(self.wheels.glob(f"vllm-{release or self.release}-*.whl"))))

    def fresh(self, name: str) -> Path:
        """Return a directory of the scratch area, emptied if it was there."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def uv(self, *words: str | Path) -> None:
        """Run uv."""
        subprocess.run([self.tools.with_name("uv"), *words], env=variables(), check=True)

    def environment(self, name: str, python: Path | None = None) -> Path:
        """Make an empty environment in the scratch area, in place of any of that name."""
        home = self.fresh(name)
        self.uv("venv", "--quiet", "--clear", "--python", python or self.tools, home)
        return home

    def engine(self, name: str, **extra: str) -> dict[str, str]:
        """Return the variables of a process with vLLM; each name has vLLM's caches of its own."""
        caches = {
            "VLLM_CACHE_ROOT": str(self.kept / "cache" / name / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.kept / "cache" / name / "inductor"),
        }
        return {**variables(), **_ENGINE_SETTINGS, **caches, **extra}

    def log(self, name: str) -> Path:
        """Return the file for what a process prints."""
        return self.kept / "logs" / f"{name}.log"


def variables(**extra: str) -> dict[str, str]:
    """Return the environment variables of this process without those that change a measurement."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_SCRUBBED)} | extra


def python(environment: Path) -> Path:
    """Return an environment's interpreter."""
    return environment / "bin" / "python"


def site_packages(environment: Path) -> Path:
    """Return where an environment's packages lie."""
    (found,) = environment.glob("lib/python3*/site-packages")
    return found
