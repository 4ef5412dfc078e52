"""Measuring several ways to do the same work in one run, and the statistics of that.

The ways take turns, A B B A, so that what else the machine does falls on all of them alike, and so
that none always comes after the one that leaves the caches coldest. A ratio is taken within each
round, between neighbours in time; its median and quartiles are those of the rounds.

An aim is a statement about the median that no number of rounds shows exactly. So it is met, or
missed, where the interval that holds the median with 95 % confidence is on one side of it, and else
undecided: what was asked is smaller than the noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median, first and third quartile."""

    median: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Aim:
    """What one way is to reach: its median (``value``), or that of its rounds against the first.

    ``of`` is ``value``, ``ratio`` or ``difference``.
    """

    way: str
    of: str
    at_most: float
    at_least: float | None = None


@dataclasses.dataclass(frozen=True)
class Figure:
    """What was measured of several ways: a sample a round of each, in one unit.

    The first way is the one that the others are held against.
    """

    name: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    aim: Aim | None = None

    def __post_init__(self) -> None:
        if len({len(values) for values in self.samples.values()}) != 1 or not self.rounds:
            raise ValueError(f"{self.name}: every way needs a sample in every round")

    @property
    def rounds(self) -> int:
        """How many rounds were measured."""
        return len(next(iter(self.samples.values())))

    @property
    def against(self) -> str:
        """The way that the others are held against."""
        return next(iter(self.samples))

    def value(self, way: str) -> Spread:
        """Return the spread of a way's samples."""
        return spread(self.of("value", way))

    def ratio(self, way: str) -> Spread:
        """Return the spread of a way's ratio to the first, taken in each round."""
        return spread(self.of("ratio", way))

    def of(self, what: str, way: str) -> list[float]:
        """Return a way's value, ratio or difference, of which ``what`` is one, in each round."""
        rounds = zip(self.samples[way], self.samples[self.against], strict=True)
        if what == "ratio":
            return [one / other for one, other in rounds]
        if what == "difference":
            return [one - other for one, other in rounds]
        return list(self.samples[way])

    def verdict(self, aim: Aim) -> Literal["met", "missed", "undecided"]:
        """Hold the interval of the median against an aim."""
        low, high = interval(self.of(aim.of, aim.way))
        least = -math.inf if aim.at_least is None else aim.at_least
        if least <= low and high <= aim.at_most:
            return "met"
        if high < least or aim.at_most < low:
            return "missed"
        return "undecided"


@dataclasses.dataclass(frozen=True)
class Table:
    """What is counted and not timed."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Section:
    """The outcome of one section; ``notes`` say what was done, in sentences."""

    notes: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table] = ()

    def machine(self) -> dict[str, Any]:
        """Give it as what JSON can hold, with every sample."""
        return dataclasses.asdict(self)


def section(found: Mapping[str, Any]) -> Section:
    """Read back what ``Section.machine`` gave."""
    figures = [
        Figure(f["name"], f["unit"], f["samples"], f["aim"] and Aim(**f["aim"]))
        for f in found["figures"]
    ]
    return Section(found["notes"], figures, [Table(**table) for table in found["tables"]])


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of samples."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return between which two samples the median lies, with 95 % confidence.

    Whatever their distribution: by how likely it is that so few of them fall on one side of it. Of
    less than six samples even the least and the greatest are not that sure; they are returned.
    """
    ordered, count = sorted(values), len(values)
    outside, both_tails = 0, 2 / 2**count
    while both_tails + 2 * math.comb(count, outside + 1) / 2**count <= 0.05:
        outside += 1
        both_tails += 2 * math.comb(count, outside) / 2**count
    return ordered[outside], ordered[count - 1 - outside]


def alternate(
    ways: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, warm_up: int = 1
) -> dict[str, dict[str, list[float]]]:
    """Take each way once a round, in every order before any comes again.

    Args:
        ways: For each way, what does the work and returns what it measured, by name.
        rounds: The rounds that count; all orders weigh alike in a multiple of their number.
        warm_up: Rounds before these, which fill caches and are forgotten.

    Returns:
        For every name measured, the samples of each way, in the order of ``ways``.
    """
    taken: dict[str, dict[str, list[float]]] = {}
    orders = itertools.cycle(itertools.permutations(ways))
    for number, order in zip(range(-warm_up, rounds), orders, strict=False):
        if number >= 0 and number % (rounds // 10 + 1) == 0:
            progress(f"  {', '.join(ways)}: round {number + 1} of {rounds}")
        for way in order:
            for name, value in ways[way]().items():
                if number >= 0:
                    taken.setdefault(name, {each: [] for each in ways})[way].append(value)
    return taken


def timed(work: Callable[[], object]) -> Mapping[str, float]:
    """Measure the wall time of a call, as "s"."""
    started = time.perf_counter()
    work()
    return {"s": time.perf_counter() - started}


def process(
    command: Sequence[str | Path], env: Mapping[str, str], *, cwd: Path | None = None
) -> Mapping[str, float]:
    """Run a process to its end: "s" of wall time, and "MiB" that it, or a child, had at most.

    Raises:
        subprocess.CalledProcessError: if it fails; its standard error has been passed on.
    """
    started = time.perf_counter()
    child = subprocess.Popen(
        [str(word) for word in command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None  # noqa: S101 - a pipe was asked for
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    taken = time.perf_counter() - started
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        print(said, file=sys.stderr)
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return {"s": taken, "MiB": usage.ru_maxrss * 1024 / MIB}


def progress(text: str) -> None:
    """Tell the user what goes on."""
    print(text, file=sys.stderr, flush=True)
