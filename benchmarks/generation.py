"""What generation costs: with every switch off, and with each that a CPU can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.measure import WAYS, Case, add, run
from benchmarks.subject import Subject, engine_command, variables

_BATCHES = 6
_FP32_HEAD = {"NRL_VLLM_FP32_LM_HEAD": "1"}
_CAPTURE = {"enable_return_routed_experts": True}


def measure(subject: Subject, section: Path) -> None:
    """Start engines in turns; each generates a batch that does not count, and some that do.

    A process is faster or slower than its like for as long as it lives, so that more batches of
    one engine cannot stand for more engines.
    """
    result = subject.scratch / "batches.json"
    cases: list[Case] = []
    for name, model, variable, argument in (
        ("dense model", models.DENSE, _FP32_HEAD, {}),
        ("experts", models.EXPERTS, {}, _CAPTURE),
    ):
        for way in WAYS:
            on = way == WAYS[-1]
            home = subject.stock if way == "stock" else subject.overlay
            changes: dict[str, Any] = argument if on else {}
            command = engine_command(home, model, 1 + _BATCHES, result, **changes)
            cases.append(Case(name, way, command, variables(home, **(variable if on else {}))))
    for _ in range(subject.turns(8)):
        for case in cases:
            run(case)
            measured = json.loads(result.read_text(encoding="utf-8"))
            first, *batches = measured["seconds"]
            name = f"{case.name}, a batch"
            versions = measured["versions"]
            add(section, name, case.way, batches, warmups=[first], versions=versions)
            name = f"{case.name}, peak memory"
            add(section, name, case.way, [measured["peak"]], unit="byte")
