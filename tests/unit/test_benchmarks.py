"""What benchmarks/ makes of its samples: the page has them all, and a failure makes no page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import command, page
from benchmarks.context import Context
from benchmarks.measure import Aim, Figure, Section, Table, alternate, interval
from benchmarks.subject import Subject

ROOT = Path(__file__).parents[2]
RATIO = "- start, overlay: 1.000 against stock (0.500 to 2.000); "


def figure(aim=None):
    # Round by round the ratio is 2, 1, 0.5, 1: not that of the medians, which is 0.8.
    return Figure("start", "ms", {"stock": [1, 2, 4, 3], "overlay": [2, 2, 2, 3]}, aim)


@pytest.fixture
def context(tmp_path):
    places = ("tools", "overlaid", "plain", "overlay", "wheels", "scratch", "kept")
    paths = {name: tmp_path / name for name in places}
    return Context(release="0.29.0", releases=("0.29.0",), quick=False, **paths)


@pytest.fixture
def measured(context, tmp_path):
    """Measure sections, write what there is to write, and return the exit status and the files."""

    def run(**sections):
        report = command.measure_all(sections, context, {"CPU": "a certain one, 3 cores"})
        kept, written = tmp_path / "kept.json", tmp_path / "page.md"
        return command.finish(report, sections, kept, written), kept, written

    return run


def cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_every_way_with_its_rounds_and_spread(measured) -> None:
    table = Table("Sizes", ("what", "MiB"), [["wheel", "0.31"]])
    section = Section(["How it was done."], [figure()], [table])
    status, _, written = measured(startup=lambda _: section)
    assert status == 0
    found = cells(written.read_text())
    assert ["CPU", "a certain one, 3 cores"] in found
    assert ["start, ms", "stock", "4", "2.5", "1.75 to 3.25", "", ""] in found
    assert ["", "overlay", "", "2", "2 to 2.25", "1.000", "0.875 to 1.250"] in found
    assert ["wheel", "0.31"] in found
    assert "How it was done." in written.read_text()


def test_nothing_is_a_multiple_of_none(measured) -> None:
    memory = Figure("peak", "MiB", {"stock": [0, 0], "overlay": [1, 3]})
    _, _, written = measured(refit=lambda _: Section([], [memory]))
    assert ["", "overlay", "", "2", "1.5 to 2.5", "", ""] in cells(written.read_text())


def test_the_page_is_made_from_the_json_alone(measured) -> None:
    section = Section(["Why."], [figure(Aim("overlay", "ratio", 1.01, 0.99))])
    _, kept, written = measured(startup=lambda _: section)
    report = json.loads(kept.read_text())
    assert page.markdown(report) == written.read_text()
    samples = report["sections"]["startup"]["figures"][0]["samples"]
    assert samples == {"stock": [1, 2, 4, 3], "overlay": [2, 2, 2, 3]}


@pytest.mark.parametrize(
    ("aim", "line"),
    [
        (Aim("overlay", "ratio", 2, 0.5), f"{RATIO}aim: at least 0.500 and at most 2.000, met"),
        (Aim("overlay", "ratio", 1.01), f"{RATIO}aim: at most 1.010, undecided"),
        (Aim("overlay", "ratio", 9, 1), f"{RATIO}aim: at least 1.000 and at most 9.000, undecided"),
        (Aim("overlay", "ratio", 0.49), f"{RATIO}aim: at most 0.490, missed"),
        (
            Aim("overlay", "ratio", 9, 2.01),
            f"{RATIO}aim: at least 2.010 and at most 9.000, missed",
        ),
        (
            Aim("stock", "value", 4),
            "- start, stock: 2.5 ms (1 to 4); aim: at most 4 ms, met",
        ),
        (
            Aim("overlay", "difference", -2.5),
            "- start, overlay: 0 ms more (-2 to 1); aim: at most -2.5 ms, missed",
        ),
    ],
)
def test_an_aim_is_met_or_missed_by_all_of_an_interval(measured, aim, line) -> None:
    _, _, written = measured(startup=lambda _: Section([], [figure(aim)]))
    assert line in written.read_text().splitlines()


@pytest.mark.parametrize(("count", "verdict"), [(1003, "met"), (1011, "missed")])
def test_what_is_counted_once_is_decided(measured, count, verdict) -> None:
    samples = {"stock": [1000], "overlay": [count]}
    counted = Figure("start", "million", samples, Aim("overlay", "ratio", 1.01))
    _, _, written = measured(startup=lambda _: Section([], [counted]))
    found = f"- start, overlay: {count / 1000} against stock; aim: at most 1.010, {verdict}"
    assert found in written.read_text().splitlines()


# Of tables of the interval for a median by the sign test, and of samples too few for one.
@pytest.mark.parametrize(
    ("samples", "low", "high"),
    [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15), (40, 14, 27)],
)
def test_the_interval_of_the_median(samples, low, high) -> None:
    assert interval(range(samples, 0, -1)) == (low, high)


def test_a_section_that_fails_makes_the_run_fail_and_no_page(measured, tmp_path, capsys) -> None:
    def broken(context):
        # The interpreter of these tests has no vLLM.
        log = context.kept / "start.log"
        arguments = {"model": "llama", "options": {}, "prompts": 1}
        with Subject(Path(sys.executable), "steps.py", {}, log, **arguments) as subject:
            subject.receive()
            subject.ask(step="vllm")
        return Section([], [figure()])

    (tmp_path / "page.md").write_text("of an earlier run")
    status, kept, written = measured(broken=broken, good=lambda _: Section([], [figure()]))
    assert status == 1
    assert written.read_text() == "of an earlier run"
    report = json.loads(kept.read_text())
    assert report["failed"] == ["broken"]
    assert list(report["sections"]) == ["good"]
    assert command.finish(report, ["good"], kept, None) == 1
    assert "No module named 'vllm'" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"quick": True}, {"sections": {}}])
def test_a_run_that_is_not_whole_makes_no_page(measured, tmp_path, change) -> None:
    _, kept, written = measured(startup=lambda _: Section([], [figure()]))
    written.unlink()
    report = json.loads(kept.read_text()) | change
    assert command.finish(report, ["startup"], kept, written) == 1
    assert not written.exists()
    assert command.finish(report, ["startup"], kept, None) == 0


def test_the_ways_take_turns_and_the_warm_up_does_not_count() -> None:
    order = []

    def way(name):
        return lambda: order.append(name) or {"s": float(len(order)), "MiB": 1.0}

    taken = alternate({"a": way("a"), "b": way("b")}, rounds=2, warm_up=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"s": {"a": [4, 5], "b": [3, 6]}, "MiB": {"a": [1, 1], "b": [1, 1]}}


def test_three_ways_come_in_every_order() -> None:
    order = []
    ways = {name: lambda name=name: order.append(name) or {"s": 1.0} for name in "abc"}
    taken = alternate(ways, rounds=6, warm_up=1)
    rounds = ["".join(order[i : i + 3]) for i in range(3, 21, 3)]
    assert sorted(rounds) == ["abc", "acb", "bac", "bca", "cab", "cba"]
    assert list(taken["s"]) == ["a", "b", "c"]


def test_a_way_that_lacks_a_round_is_no_figure() -> None:
    with pytest.raises(ValueError, match="start: every way needs a sample in every round"):
        Figure("start", "ms", {"stock": [1, 2], "overlay": [1]})


@pytest.mark.parametrize("options", [["no-such-section"], ["--write", "build"], ["--vllm", "0.1"]])
def test_what_makes_no_sense_is_refused_at_once(options) -> None:
    run = [sys.executable, ROOT / "benchmarks" / "run", *options]
    process = subprocess.run(run, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].startswith("benchmarks/run: error:")


def test_without_valgrind_nothing_is_measured() -> None:
    run = [sys.executable, ROOT / "benchmarks" / "run", "instructions"]
    process = subprocess.run(run, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1].endswith("apt-get install valgrind")
