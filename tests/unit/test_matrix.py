"""How ci/matrix judges what pytest left behind: pytest's own JUnit XML, made by running pytest."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PASSES = "def test_it(record_property):\n    record_property('ran', {half!r})\n"
COMPARES = """\
def test_both(record_property):
    record_property('ran', 'stock')
    record_property('ran', 'overlay')
"""
FAILS = PASSES + "    assert False, 'wrong'\n"
SKIPS = PASSES + "    import pytest\n    pytest.skip('no such kernel')\n"
BREAKS = "import pytest\n@pytest.fixture\ndef broken():\n    1 / 0\ndef test_it(broken): pass\n"


@pytest.fixture(scope="module")
def results():
    specification = importlib.util.spec_from_file_location("results", ROOT / "ci" / "results.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["results"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["results"]


@pytest.fixture
def judged(results, tmp_path):
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
        return results.judge("0.29.0", "some-patch", results.read(xml))

    return judge


def test_both_halves_make_a_cell(results, judged) -> None:
    cell = judged(stock=PASSES.format(half="stock"), overlay=PASSES.format(half="overlay"))
    assert (cell.failed, cell.hole) == ((), None)
    assert results.holes([cell]) == []
    assert cell.text() == "1 / 1"


def test_a_test_that_compares_counts_for_both(judged) -> None:
    cell = judged(both=COMPARES, overlay=PASSES.format(half="overlay"))
    assert cell.text() == "1 / 2"


@pytest.mark.parametrize(("half", "missing"), [("stock", "overlay"), ("overlay", "stock")])
def test_half_a_proof_is_a_hole(results, judged, half, missing) -> None:
    cell = judged(only=PASSES.format(half=half))
    assert results.holes([cell]) == [
        f"some-patch on vLLM 0.29.0: no test passed on {missing}",
    ]
    assert cell.text() == "hole"


@pytest.mark.parametrize("wrong", [FAILS.format(half="overlay"), BREAKS])
def test_a_failure_is_named(results, judged, wrong) -> None:
    cell = judged(both=COMPARES, wrong=wrong)
    assert results.holes([cell]) == ["some-patch on vLLM 0.29.0: test_it failed"]
    assert cell.text() == "1 failed"


def test_a_skip_is_no_pass_and_keeps_its_reason(results, judged) -> None:
    cell = judged(skipped=SKIPS.format(half="overlay"), stock=PASSES.format(half="stock"))
    assert dict(cell.skipped) == {"no such kernel": 1}
    assert results.holes([cell]) == ["some-patch on vLLM 0.29.0: no test passed on overlay"]
    page = results.markdown(results.rows([cell]), [cell])
    assert "- skipped, some-patch on 0.29.0 (1): no such kernel" in page.splitlines()
    assert "- **some-patch on vLLM 0.29.0: no test passed on overlay**" in page.splitlines()


def test_no_result_is_a_hole(results) -> None:
    cell = results.judge("0.28.0", "some-patch", [])
    assert results.holes([cell]) == [
        "some-patch on vLLM 0.28.0: no test passed on stock or overlay"
    ]
    assert cell.text() == "-"


def test_a_patch_that_is_not_needed_needs_no_proof(results) -> None:
    cell = results.judge("0.28.0", "some-patch", [], needed=())
    assert results.holes([cell]) == []


def test_the_table_has_a_row_an_area_and_a_column_a_release(results) -> None:
    cells = [results.judge(release, "a", []) for release in ("0.28.0", "0.29.0")]
    table = results.rows(cells)
    assert table == [["stock / overlay", "0.28.0", "0.29.0"], ["a", "-", "-"]]
    assert results.plain(table).splitlines()[1].split() == ["a", "-", "-"]
    assert json.loads(json.dumps(results.machine(cells)))[1]["release"] == "0.29.0"


@pytest.mark.parametrize("options", [["0.1.0"], ["--only", "no-such-patch"]])
def test_what_it_does_not_know_is_refused_at_once(options) -> None:
    command = [sys.executable, ROOT / "ci" / "matrix", *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert options[-1] in process.stderr
