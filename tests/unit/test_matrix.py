"""How ci/matrix judges what pytest left behind: pytest's own JUnit XML, made by running pytest."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from harness import cells, junit, matrix

PASSES = "def test_it(record_property):\n    record_property('ran', {half!r})\n"
COMPARES = """\
def test_both(record_property):
    record_property('ran', 'stock')
    record_property('ran', 'overlay')
"""
FAILS = PASSES + "    assert False, 'wrong'\n"
SKIPS = PASSES + "    import pytest\n    pytest.skip('no such kernel')\n"
BREAKS = "import pytest\n@pytest.fixture\ndef broken():\n    1 / 0\ndef test_it(broken): pass\n"


@pytest.fixture
def judged(tmp_path):
    def judge(**files):
        for name, content in files.items():
            file = tmp_path / "tests" / "patches" / "some_patch" / f"test_{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--rootdir", str(tmp_path)]
        xml = tmp_path / "results.xml"
        command += ["-c", "none.ini", "-q", f"--junitxml={xml}", "tests"]
        (tmp_path / "none.ini").write_text("[pytest]\n")
        subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
        return cells.judge("0.29.0", "some-patch", junit.read(xml))

    return judge


def test_both_halves_make_a_cell(judged) -> None:
    cell = judged(stock=PASSES.format(half="stock"), overlay=PASSES.format(half="overlay"))
    assert (cell.failed, cell.hole) == ((), None)
    assert cells.holes([cell]) == []
    assert cell.text() == "1 / 1"


def test_a_test_that_compares_counts_for_both(judged) -> None:
    cell = judged(both=COMPARES, overlay=PASSES.format(half="overlay"))
    assert cell.text() == "1 / 2"


@pytest.mark.parametrize(("half", "missing"), [("stock", "overlay"), ("overlay", "stock")])
def test_half_a_proof_is_a_hole(judged, half, missing) -> None:
    cell = judged(only=PASSES.format(half=half))
    assert cells.holes([cell]) == [
        f"some-patch on vLLM 0.29.0: no test passed on {missing}",
    ]
    assert cell.text() == "hole"


@pytest.mark.parametrize("wrong", [FAILS.format(half="overlay"), BREAKS])
def test_a_failure_is_named(judged, wrong) -> None:
    cell = judged(both=COMPARES, wrong=wrong)
    assert cells.holes([cell]) == ["some-patch on vLLM 0.29.0: test_it failed"]
    assert cell.text() == "1 failed"


def test_a_skip_is_no_pass_and_keeps_its_reason(judged) -> None:
    cell = judged(skipped=SKIPS.format(half="overlay"), stock=PASSES.format(half="stock"))
    assert dict(cell.skipped) == {"no such kernel": 1}
    assert cells.holes([cell]) == ["some-patch on vLLM 0.29.0: no test passed on overlay"]
    page = cells.markdown([cell]).splitlines()
    assert "- skipped, some-patch on 0.29.0 (1): no such kernel" in page
    assert "- **some-patch on vLLM 0.29.0: no test passed on overlay**" in page


def test_sources_alone_have_no_hole_where_all_is_skipped(judged) -> None:
    skipped = judged(skipped=SKIPS.format(half="overlay"))
    assert skipped.hole
    both = [
        junit.Case("tests.patches.some_patch.test_a", "test_it", outcome)
        for outcome in (junit.SKIPPED, junit.PASSED)
    ]
    assert cells.all_skipped("some-patch", both[:1])
    assert not cells.all_skipped("some-patch", both)
    assert not cells.all_skipped("some-patch", [])
    header, _ = cells.table([cells.judge("0.33.0", "some-patch", both, ())])
    assert header == ["stock / overlay", "0.33.0 (sources)"]


def test_no_result_is_a_hole() -> None:
    cell = cells.judge("0.28.0", "some-patch", [])
    assert cells.holes([cell]) == ["some-patch on vLLM 0.28.0: no test passed on stock or overlay"]
    assert cell.text() == "-"


def test_a_patch_that_is_not_needed_needs_no_proof() -> None:
    cell = cells.judge("0.28.0", "some-patch", [], needed=())
    assert cells.holes([cell]) == []


def test_the_table_has_a_row_an_area_and_a_column_a_release() -> None:
    found = [cells.judge(release, "a|b", []) for release in ("0.28.0", "0.29.0")]
    assert cells.table(found) == (
        ["stock / overlay", "0.28.0", "0.29.0"],
        [["a|b", "-", "-"]],
    )
    assert cells.markdown(found).splitlines()[:3] == [
        "| stock / overlay | 0.28.0 | 0.29.0 |",
        "| --- | --- | --- |",
        r"| a\|b | - | - |",
    ]
    assert json.loads(json.dumps(cells.machine(found)))[1]["release"] == "0.29.0"


def test_every_area_runs_in_one_process_and_has_tests() -> None:
    areas = [area for group in matrix.units().values() for area in group]
    assert sorted(areas) == sorted(matrix.AREAS)
    assert all(any(matrix.directory(area).glob("test_*.py")) for area in areas)


def test_a_result_is_kept_only_for_the_same_wheel_and_tests(tmp_path) -> None:
    def fingerprint(name: str, content: str, *areas: str) -> str:
        with zipfile.ZipFile(tmp_path / "overlay.whl", "w") as wheel:
            wheel.writestr(name, content)
        return matrix.fingerprint(tmp_path / "overlay.whl", areas)

    module = "vllm_nemo/_modules/vllm/a.py"
    first = fingerprint(module, "a = 1", "engine")
    assert fingerprint(module, "a = 1", "engine") == first
    assert fingerprint(module, "a = 2", "engine") != first
    assert fingerprint(module, "a = 1", "fp32-lm-head") != first
    # Metadata has no part in what a test shows.
    assert fingerprint("a.dist-info/RECORD", "1") == fingerprint("a.dist-info/RECORD", "2")


def test_no_record_and_half_a_record_are_told_apart_from_an_empty_one(tmp_path) -> None:
    xml = tmp_path / "results.xml"
    with pytest.raises(junit.RecordError, match=r"results\.xml"):
        junit.read(xml)
    xml.write_text("<testsuites><testsuite><testcase name='a'")
    with pytest.raises(junit.RecordError, match=r"results\.xml"):
        junit.read(xml)
    xml.write_text("<testsuites/>")
    assert junit.read(xml) == []


def test_a_failure_outranks_what_else_a_test_came_to(tmp_path) -> None:
    xml = tmp_path / "results.xml"
    xml.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.patches.a_b.test_it" name="t" time="2.5">
        <skipped message="later"/><failure message="first"/></testcase>
        </testsuite></testsuites>"""
    )
    (case,) = junit.read(xml)
    assert (case.outcome, case.reason, case.seconds) == ("failed", "first", 2.5)
    assert cells.area(case) == "a-b"
    assert junit.count([case]) == {"passed": 0, "failed": 1, "skipped": 0}
