"""A report as a terminal's table and as the page docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import measure

if TYPE_CHECKING:
    from benchmarks.measure import Aim, Figure, Section, Spread

_HEAD = ("what", "way", "rounds", "median", "quartiles", "ratio", "quartiles of the ratio")

_INTRODUCTION = """\
# What it costs

<!-- Made by `benchmarks/run --write`. -->

Measured on one machine, in one run of `benchmarks/run`, on {date}, in {minutes} minutes. The ways
to do one thing took turns, A B B A. Every number is the median of the rounds, with the first and
third quartile beside it. A ratio is that of a way to the first of its group, taken within each
round. Peak memory is that of the measured process by the kernel's account.

Beside what is held against an aim stands the interval that holds its median with 95 % confidence.
An aim is met or missed if all of the interval is; else it is undecided, since the run is noisier
than what the aim asks. Instructions have no noise: they are counted, once.

To measure on another machine: `benchmarks/run --write`, with nothing else running.
"""


def rows(figure: Figure) -> list[list[str]]:
    """Give a figure as rows, one a way."""
    made = []
    for number, way in enumerate(figure.samples):
        value = figure.value(way)
        # Nothing is a multiple of none: of memory that was not needed.
        compared = way != figure.against and all(figure.samples[figure.against])
        ratio = figure.ratio(way) if compared else None
        made.append(
            [
                "" if number else f"{figure.name}, {figure.unit}",
                way,
                "" if number else str(figure.rounds),
                _number(value.median),
                _range(value, _number),
                "" if ratio is None else _ratio(ratio.median),
                "" if ratio is None else _range(ratio, _ratio),
            ]
        )
    return made


def aims(section: Section) -> list[str]:
    """Say for each aim what was found, in a sentence."""
    return [_aim(figure, figure.aim) for figure in section.figures if figure.aim]


def _aim(figure: Figure, aim: Aim) -> str:
    samples = figure.of(aim.of, aim.way)
    write = _ratio if aim.of == "ratio" else _number
    unit = "" if aim.of == "ratio" else f" {figure.unit}"
    what = {"value": "", "ratio": f" against {figure.against}", "difference": " more"}[aim.of]
    least = "" if aim.at_least is None else f"at least {write(aim.at_least)} and "
    low, high = measure.interval(samples)
    sure = "" if low == high else f" ({write(low)} to {write(high)})"
    return (
        f"{figure.name}, {aim.way}: {write(measure.spread(samples).median)}{unit}{what}{sure}; "
        f"aim: {least}at most {write(aim.at_most)}{unit}, {figure.verdict(aim)}"
    )


def _number(value: float) -> str:
    """Write a number with three significant digits, or all that are in front of the point."""
    digits = f"{value:.3g}"
    return f"{value:.0f}" if "e" in digits else digits


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else _number(value)


def _range(found: Spread, write: Any) -> str:  # noqa: ANN401 - one of the two above
    return f"{write(found.low)} to {write(found.high)}"


def terminal(name: str, section: Section) -> str:
    """Write a section for a terminal."""
    parts = [f"{name}\n{'=' * len(name)}"]
    if section.figures:
        body = [row for figure in section.figures for row in rows(figure)]
        parts.append(_aligned([_HEAD, *body]))
    parts += [f"{t.name}\n{_aligned([t.head, *t.rows])}" for t in section.tables]
    parts += aims(section)
    return "\n\n".join(parts) + "\n"


def _aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def markdown(report: Mapping[str, Any]) -> str:
    """Write the page from a report, as ``benchmarks/run`` keeps it in JSON."""
    minutes = f"{report['seconds'] / 60:.0f}"
    lines = [_INTRODUCTION.format(date=report["date"], minutes=minutes)]
    lines += _table(("machine", ""), report["machine"].items())
    for name, kept in report["sections"].items():
        section = measure.section(kept)
        lines += ["", f"## {name.capitalize()}", ""]
        lines += [f"{note}\n" for note in section.notes]
        if section.figures:
            lines += _table(_HEAD, [row for figure in section.figures for row in rows(figure)])
        for table in section.tables:
            lines += ["", f"{table.name}:", "", *_table(table.head, table.rows)]
        if reached := aims(section):
            lines += ["", *(f"- {line}" for line in reached)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _table(head: Sequence[str], body: Any) -> Iterator[str]:  # noqa: ANN401 - rows of text
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in body:
        yield f"| {' | '.join(row)} |"
