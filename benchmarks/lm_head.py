"""Time and peak memory of vLLM's LM head: in the model's dtype, in fp32, and in fp32 by a cast.

By itself a command, for one GPU or a CPU: run it with the interpreter of an environment that has
vLLM and the overlay. "cast" is what an fp32 head costs without vLLM's way of doing it (on a CPU the
two are the same: only CUDA and ROCm hand out the fp32 sums of a bf16 product).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import page
from benchmarks.measure import Figure, Section, alternate
from benchmarks.subject import Subject

WAYS = {"model dtype": "0", "fp32": "1", "cast": "1"}


def figures(
    python: Path,
    env: Callable[[str], Mapping[str, str]],
    logs: Path,
    *,
    rounds: int,
    device: str,
    vocabulary: int,
    hidden: int,
    rows: int,
) -> list[Figure]:
    """Measure every way, in turns.

    Args:
        python: The interpreter of an environment with vLLM and the overlay.
        env: Gives a way's variables, but for that of the head.
        logs: A directory for what the processes print.
        rounds: Projections of each way.
        device: "cpu" or "cuda".
        vocabulary, hidden: The shape of the weight.
        rows: Tokens a step.
    """
    arguments: dict[str, Any] = {
        "device": device,
        "vocabulary": vocabulary,
        "hidden": hidden,
        "rows": rows,
    }
    with contextlib.ExitStack() as stack:
        subjects = {}
        for way, switch in WAYS.items():
            variables = {**env(way), "NRL_VLLM_FP32_LM_HEAD": switch}
            log = logs / f"head-{way.replace(' ', '-')}.log"
            subject = Subject(python, "head.py", variables, log, way=way, **arguments)
            subjects[way] = stack.enter_context(subject)
        for way, subject in subjects.items():
            subject.receive()
            dtype = subject.ask()["dtype"]
            if dtype != ("bfloat16" if way == "model dtype" else "float32"):
                raise RuntimeError(f"the head in {way} gives logits in {dtype}")

        def project(subject: Subject) -> Mapping[str, float]:
            taken = subject.ask()
            return {"ms": taken["ms"], "MiB": taken["MiB"]}

        ways = {way: lambda s=subject: project(s) for way, subject in subjects.items()}
        taken = alternate(ways, rounds, warm_up=2)
    shape = f"head of {vocabulary} x {hidden}, {rows} rows"
    return [
        Figure(shape, "ms", taken["ms"]),
        Figure("most memory beyond weight and input", "MiB", taken["MiB"]),
    ]


def main() -> None:
    """Measure every way, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--vocabulary", type=int, default=131072)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=64, help="tokens a step (default: 64)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as logs:
        measured = figures(
            Path(sys.executable),
            lambda _: {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
            Path(logs),
            rounds=options.rounds,
            device=options.device,
            vocabulary=options.vocabulary,
            hidden=options.hidden,
            rows=options.rows,
        )
    section = Section([], measured)
    if options.json:
        print(json.dumps(section.machine(), indent=1))
    else:
        print(page.terminal(f"on {options.device}", section))


if __name__ == "__main__":
    main()
