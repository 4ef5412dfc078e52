"""``import``: where the hunks of foreign patches belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import foreign, stand_in


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path)


TWICE = "def f():\n    x = 1\n    return x\n\n\ndef g():\n    x = 1\n    return x\n"


def _twice(start: int) -> str:
    return (
        "--- a/vllm/twice.py\n+++ b/vllm/twice.py\n"
        f"@@ -{start},2 +{start},2 @@\n-    x = 1\n+    x = 2\n     return x\n"
    )


@pytest.fixture
def twice(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path, twice=f"import a\n{TWICE}END = 1\n")


@pytest.mark.parametrize(("line", "function"), [(3, "f"), (8, "g")])
def test_of_equal_places_the_line_in_the_header_decides(
    twice: foreign.Importer, line: int, function: str
) -> None:
    assert twice.bring(_twice(line), id="it") == 0
    namespace: dict[str, object] = {}
    source = twice.served()["vllm/twice.py"].replace("import a\n", "")
    exec(source, namespace)  # noqa: S102
    results = {name: namespace[name]() for name in "fg"}  # type: ignore[operator]
    assert results == {"f": 1, "g": 1} | {function: 2}


def test_of_equal_places_none_is_guessed(
    twice: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert twice.bring(_twice(5), id="it") == 1
    told = capsys.readouterr().err
    assert "vllm/twice.py, hunk 1: ambiguous: its old text occurs at lines 3, 8" in told
    assert "--fuzz" in told
    assert twice.bring(_twice(5), id="it", fuzz=True) == 0
    assert twice.patches[0].review == ("vllm/twice.py hunk 1: placed at line 3, fits at 8 too",)


def test_a_hunk_that_does_not_fit_is_shown_with_the_nearest_lines(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = foreign.PLAIN.replace(" def f(x):", " def f(z):")
    assert importer.bring(text, id="it") == 1
    told = capsys.readouterr().err
    assert f"error: 1 conflict with vLLM {foreign.RELEASE}" in told
    assert (
        f"it ({foreign.RELEASE}.patch): vllm/models.py, hunk 1: not found; nearest is line 1"
        in told
    )
    assert "-def f(z):\n" in told
    assert "+def f(x):\n" in told
    assert "--fuzz places hunks of which only some context differs" in told
    assert not importer.directory.exists()


def test_fuzz_places_it_and_marks_it_for_review(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = foreign.PLAIN.replace(" def f(x):", " def f(z):")
    assert importer.bring(text, id="it", fuzz=True) == 0
    entry = "vllm/models.py hunk 1: context differed in 1 line"
    assert f"review: {entry}" in capsys.readouterr().out
    assert importer.variants() == {"it": foreign.STRICT}
    (patch,) = importer.patches
    assert patch.review == (entry,)
    stand_in.write(importer.root, {"README.md": "<!-- table -->\n<!-- end of table -->\n"})
    assert importer.command("lint") == 1
    assert f"patches/it/patch.toml: review: {entry}; look at it" in capsys.readouterr().err


def test_a_hunk_that_ends_its_file_does_not_fit_elsewhere(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "--- a/vllm/models.py\n+++ b/vllm/models.py\n"
    end = f"{header}@@ -1,2 +1,3 @@\n def f(x):\n     y = x\n+    x = 0\n"
    assert importer.bring(end, id="it") == 1
    assert "hunk 1: ends its file, but is at line 1 of 8" in capsys.readouterr().err
    assert importer.bring(end, id="it", fuzz=True) == 0
    assert importer.patches[0].review == ("vllm/models.py hunk 1: not at the end of the file",)
    begin = f"{header}@@ -1 +1,2 @@\n+N = 1\n def g(x):\n"
    assert importer.bring(begin, id="that") == 1
    assert "hunk 1: begins its file, but is at line 8 of this one" in capsys.readouterr().err


def test_fuzz_does_not_touch_what_is_changed(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = foreign.PLAIN.replace("-    return y", "-    return z")
    assert importer.bring(text, id="it", fuzz=True) == 1
    told = capsys.readouterr().err
    assert "not found" in told
    assert "--fuzz" not in told


def test_an_insertion_without_context_has_no_place_but_its_line(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "--- a/vllm/models.py\n+++ b/vllm/models.py\n@@ -2,0 +3 @@\n+    y = abs(y)\n"
    assert importer.bring(text, id="it") == 1
    assert "has no line of context" in capsys.readouterr().err
    assert importer.bring(text, id="it", fuzz=True) == 0
    assert "    y = x\n    y = abs(y)\n" in importer.served()["vllm/models.py"]
    assert "no context; placed at line 3 by number" in importer.patches[0].review[0]


def test_what_the_base_has_already_is_said(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = foreign.PLAIN.replace(
        "-    return y\n+    return abs(y)", "-    return z\n+    return y"
    )
    assert importer.bring(text) == 1
    assert "vllm/models.py: the base has this change already" in capsys.readouterr().err


def test_what_does_not_compile_is_not_imported(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.PLAIN.replace("abs(y)", "abs(y")) == 1
    assert "vllm/models.py: the patched file does not compile" in capsys.readouterr().err
    assert importer.bring(foreign.added("vllm/a.json")) == 1
    assert "vllm/a.json: not JSON" in capsys.readouterr().err
    assert not importer.directory.exists()
