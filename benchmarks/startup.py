"""What a start costs: of a Python that never imports vLLM, of its imports, and of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.context import Context, python, site_packages, variables
from benchmarks.measure import Aim, Figure, Section, alternate, process
from benchmarks.subject import Subject

# The steps of a start, in subjects/steps.py, and what is shown for each; and its engine.
STEPS = {
    "vllm": "import vllm",
    "llm_class": "from vllm import LLM",
    "engine": "engine start",
}
ENGINE: dict[str, Any] = {"model": "llama", "options": {"dtype": "float16"}, "prompts": 4}
_CPU_TIME = "all three, CPU time"


def measure(context: Context) -> Section:
    """Measure interpreters, then imports and engines: stock, stock again and with the overlay."""
    names = ("bare", "bare-empty", "bare-overlaid")
    bare, empty, overlaid = (context.environment(name) for name in names)
    (site_packages(empty) / "empty.pth").write_text("import empty\n", encoding="utf-8")
    (site_packages(empty) / "empty.py").touch()
    context.uv("pip", "install", "--quiet", "--no-deps", "--python", overlaid, context.overlay)
    starts = alternate(
        {
            "without": _interpreter(bare),
            "with a .pth that imports an empty module": _interpreter(empty),
            "with the overlay": _interpreter(overlaid),
        },
        context.rounds(1002),
        warm_up=3,
    )
    ways = {
        "stock": _engine(context, "stock", context.plain),
        # What a difference between two ways that are the same looks like.
        "stock, again": _engine(context, "stock", context.plain),
        "overlay": _engine(context, "overlay", context.overlaid),
    }
    steps = alternate(ways, context.rounds(24))
    return Section(
        notes=[
            (
                "The interpreters run `pass` in environments that are empty but for the overlay, "
                "or for the least that could stand in its place. The engine is vLLM "
                f"{context.release} on a CPU, in the process that starts it, with a model "
                "of one small layer and weights that are made up; stock is an environment "
                "without the overlay, measured as two ways, which differ by nothing but noise. "
                "Bytecode and vLLM's own caches were there before. The next section "
                "counts what this one times."
            ),
        ],
        figures=[
            Figure(
                "a Python without vLLM",
                "ms",
                starts["ms"],
                Aim("with the overlay", "difference", 0.3),
            ),
            *(
                Figure(name, "s", samples, Aim("overlay", "ratio", 1.01))
                for name, samples in steps.items()
            ),
        ],
    )


def _interpreter(home: Path) -> Callable[[], Mapping[str, float]]:
    command: list[str | Path] = [python(home), "-c", "pass"]
    env = variables()
    return lambda: {"ms": 1e3 * process(command, env)["s"]}


def _engine(context: Context, name: str, home: Path) -> Callable[[], Mapping[str, float]]:
    def start() -> Mapping[str, float]:
        env = context.engine(name)
        log = context.log(f"startup-{name}")
        with Subject(python(home), "steps.py", env, log, **ENGINE) as subject:
            subject.receive()
            taken = {step: subject.ask(step=step) for step in STEPS}
        times = {name: taken[step]["s"] for step, name in STEPS.items()}
        return {**times, _CPU_TIME: taken["engine"]["CPU"]}

    return start
