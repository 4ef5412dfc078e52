"""What a refit of a vision tower costs, and the start of message queues."""

from __future__ import annotations

import contextlib
from typing import Any

from benchmarks.context import Context, python
from benchmarks.measure import Figure, Section, alternate
from benchmarks.subject import Subject

QUEUES = (2, 8, 32, 64)
# Ports of a band that the system hands to nobody.
_BAND = "29400"


def measure(context: Context) -> Section:
    """Measure streams of weights, then queues."""
    return Section(
        notes=[
            (
                "Weights: vLLM's RADIO tower by itself, in bf16 on a CPU, loads a stream of "
                "all its weights by `load_weights`, batch by batch, as a trainer sends them. "
                "Names of released checkpoints are all that stock vLLM knows, and of those it "
                "drops LayerScale; under transformers' names it drops everything, so there is "
                "nothing to compare with. Peak memory is what is added to the model and the "
                "stream."
            ),
            (
                "Queues: so many processes, forked beforehand, each make a message queue for "
                "readers on another node at the same moment, all in one band (`VLLM_PORT`); "
                "the time is that of the slowest."
            ),
        ],
        figures=[*_weights(context), *_queues(context)],
    )


def _weights(context: Context) -> list[Figure]:
    layers = 2 if context.quick else 24
    formats = {"stock, released names": "legacy"}
    overlaid = {
        "overlay, released names": "legacy",
        "overlay, transformers' names": "transformers",
    }
    with contextlib.ExitStack() as stack:
        stock, overlay = (
            stack.enter_context(
                Subject(
                    python(home),
                    "tower.py",
                    context.engine(f"tower-{name}"),
                    context.log(f"tower-{name}"),
                    layers=layers,
                )
            )
            for name, home in (("stock", context.plain), ("overlay", context.overlaid))
        )
        stock.receive()
        overlay.receive()
        pairs = [(stock, formats), (overlay, overlaid)]
        ways = {
            way: lambda s=subject, f=fmt: s.ask(fmt=f)
            for subject, named in pairs
            for way, fmt in named.items()
        }
        size = stock.ask(fmt=None)["MiB"]
        taken = alternate(ways, context.rounds(9))
    return [
        Figure(f"a stream of {size:.0f} MiB", "ms", taken["ms"]),
        Figure("its peak memory", "MiB", taken["MiB"]),
    ]


def _queues(context: Context) -> list[Figure]:
    figures = []
    with contextlib.ExitStack() as stack:
        subjects: dict[str, Any] = {}
        for name, home in (("stock", context.plain), ("overlay", context.overlaid)):
            env = context.engine(f"queues-{name}", VLLM_PORT=_BAND)
            log = context.log(f"queues-{name}")
            subject = Subject(python(home), "queues.py", env, log)
            subjects[name] = stack.enter_context(subject)
        for subject in subjects.values():
            subject.receive()
        for count in QUEUES[:2] if context.quick else QUEUES:
            ways = {
                name: lambda s=subject, n=count: s.ask(processes=n)
                for name, subject in subjects.items()
            }
            taken = alternate(ways, context.rounds(9))
            figures.append(Figure(f"queues of {count} processes", "ms", taken["ms"]))
    return figures
