"""What a Python process that never imports vLLM pays for the overlay.

Makes two environments, alike but for an installed overlay wheel (given as argument), and starts
their interpreters in turn. Prints medians, their ratio, what ``-X importtime`` says of
``vllm_nemo``, and every file below the package that is opened.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

_WATCH = """\
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import site
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "vllm_nemo"]
sys.modules.pop("vllm_nemo", None)
import vllm_nemo
print(*sorted({name for name in opened if "vllm_nemo" in name}), sep="\\n")
print(*sorted(name for name in sys.modules if name.startswith("vllm_nemo")), sep="\\n")
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="an overlay wheel")
    parser.add_argument("--runs", type=int, default=100, help="starts of each (default: 100)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain, overlaid = (_environment(Path(scratch, name)) for name in ("plain", "overlaid"))
        install = ["-m", "pip", "install", "--quiet", "--no-deps", str(options.wheel.resolve())]
        _run([overlaid, *install])
        result = {
            "python": platform.python_version(),
            "wheel": options.wheel.name,
            **_starts(plain, overlaid, options.runs),
            "vllm_nemo_import_us": _import_time(overlaid),
            "files_and_modules": _run([overlaid, "-c", _WATCH]).stdout.split(),
        }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")


def _environment(home: Path) -> str:
    venv.create(home, with_pip=True)
    return str(home / "bin" / "python")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True)


def _starts(plain: str, overlaid: str, runs: int) -> dict[str, float]:
    times: dict[str, list[float]] = {plain: [], overlaid: []}
    for _ in range(runs + 3):
        for python, taken in times.items():
            started = time.perf_counter()
            _run([python, "-c", "pass"])
            taken.append(time.perf_counter() - started)
    # The first starts compile bytecode and fill caches.
    medians = {python: statistics.median(taken[3:]) for python, taken in times.items()}
    pairs = zip(times[plain][3:], times[overlaid][3:], strict=True)
    return {
        "plain_ms": round(1e3 * medians[plain], 3),
        "overlaid_ms": round(1e3 * medians[overlaid], 3),
        "ratio": round(statistics.median(with_it / without for without, with_it in pairs), 4),
    }


def _import_time(python: str) -> float:
    """Return the median self time of ``vllm_nemo`` in microseconds."""
    seen = []
    for _ in range(21):
        report = _run([python, "-X", "importtime", "-c", "pass"]).stderr
        line = next(line for line in report.splitlines() if line.endswith("vllm_nemo"))
        seen.append(float(line.split(":")[1].split("|")[0]))
    return statistics.median(seen)


if __name__ == "__main__":
    sys.exit(main())
