"""What is measured: one vLLM release, in an environment with the overlay and in one without."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import engine, environments
from harness.tools import BUILD, run

from benchmarks import models

_HOME = "bench-envs"
_ENGINE = Path(__file__).with_name("engine.py")
_BATCH = {"prompts": 8, "length": 32, "tokens": 32}
_DTYPE_DENSE = "float16"  # vLLM's attention in bfloat16 dies on a CPU whose AMX nobody has set up


@dataclasses.dataclass(frozen=True)
class Subject:
    """What one run measures.

    Attributes:
        release: The vLLM release.
        stock: The root of an environment with vLLM on a CPU.
        overlay: The root of one that is alike, with the overlay.
        scratch: A directory for what the measured commands write; it stays after a run.
        quick: Whether the run is only to see that everything works.
    """

    release: str
    stock: Path
    overlay: Path
    scratch: Path
    quick: bool

    def turns(self, wanted: int) -> int:
        """Return how many values to take."""
        return 2 if self.quick else wanted


def make(release: str, *, quick: bool) -> Subject:
    """Make the environments, unless they are there, and install the overlay of this source tree."""
    interpreter = Path(sys.executable)
    stock, overlay = (
        environments.environment(release, interpreter, f"{_HOME}/{name}")
        for name in ("stock", "overlay")
    )
    uv, wheel = interpreter.with_name("uv"), environments.wheel(release, interpreter)
    run([uv, "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", overlay, wheel])
    scratch = BUILD / _HOME / "scratch"
    scratch.mkdir(exist_ok=True)
    return Subject(release, stock, overlay, scratch, quick)


def python(home: Path) -> Path:
    """Return an environment's interpreter."""
    return home / "bin" / "python"


def variables(home: Path, **extra: str) -> dict[str, str]:
    """Return the variables of an engine, with caches of its environment's own."""
    settings = {
        **engine.CPU,
        # The engine runs in the process that is measured.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CACHE_ROOT": str(home / "cache" / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "cache" / "inductor"),
    }
    return engine.variables(**settings | extra)


def engine_command(
    home: Path,
    model: Mapping[str, Any],
    batches: int,
    result: Path | None = None,
    **changes: Any,  # noqa: ANN401 - whatever LLM takes
) -> list[str | Path]:
    """Return the command that starts an engine and generates batches (``engine.py``).

    Args:
        home: The root of the environment.
        model: One of ``models``.
        batches: How many batches.
        result: The file that is written, where there are batches.
        changes: Arguments of ``LLM`` to add.
    """
    dtype = "float32" if model is models.EXPERTS else _DTYPE_DENSE
    shared: dict[str, Any] = {"load_format": "dummy", "seed": 0, "dtype": dtype}
    shared["max_num_seqs"] = _BATCH["prompts"]
    given = {
        **_BATCH,
        "model": model,
        "arguments": engine.arguments(**shared | changes),
        "batches": batches,
        "result": str(result),
    }
    return [python(home), _ENGINE, json.dumps(given)]
