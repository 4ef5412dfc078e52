"""``import``: what comes in in which shape, and what is refused, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import foreign


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path)


@pytest.mark.parametrize("text", foreign.SHAPES.values(), ids=foreign.SHAPES)
def test_every_shape_comes_in_as_the_same_strict_diff(
    importer: foreign.Importer, text: str
) -> None:
    assert importer.bring(text, id="it") == 0
    assert importer.variants() == {"it": foreign.STRICT}
    assert importer.served() == {"vllm/models.py": foreign.CHANGED}


def test_what_is_brought_is_said(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        foreign.SHAPES["CR LF"]
        .replace("abs(y)", "abs(y)  ")
        .replace("a/vllm/", "")
        .replace("b/vllm/", "")
    )
    assert importer.bring(text) == 0
    assert capsys.readouterr().out == (
        f"acme/patches/x/{foreign.RELEASE}.patch: x\n"
        "    paths were read as with --strip 0 --prefix vllm/\n"
        "    line ends CR LF were made LF\n"
        "    vllm/models.py: white space taken off lines 4\n"
    )


REMOVED = "".join(f"-{line}\n" for line in foreign.MODULE.splitlines())
_LINK = "new file mode 120000\n--- /dev/null\n+++ b/vllm/l.py\n@@ -0,0 +1 @@\n+models.py\n"
REFUSED: dict[str, tuple[str, str]] = {
    "deletion": (
        f"--- a/vllm/models.py\n+++ /dev/null\n@@ -1,8 +0,0 @@\n{REMOVED}",
        "an overlay cannot delete a module: vllm/models.py",
    ),
    "git's deletion of an empty file": (
        (
            "diff --git a/vllm/engine/__init__.py b/vllm/engine/__init__.py\n"
            "deleted file mode 100644\nindex e69de29..0000000\n"
        ),
        "an overlay cannot delete a module: vllm/engine/__init__.py",
    ),
    "diff -N's deletion": (
        (
            "--- a/vllm/models.py\t2026-11-03 12:00:00 +0000\n"
            f"+++ b/vllm/models.py\t1970-01-01 00:00:00 +0000\n@@ -1,8 +0,0 @@\n{REMOVED}"
        ),
        "an overlay cannot delete a module: vllm/models.py",
    ),
    "deletion of data": (
        "--- a/vllm/engine/configs/E=1.json\n+++ /dev/null\n@@ -1 +0,0 @@\n-{}\n",
        "an overlay cannot delete a file: vllm/engine/configs/E=1.json",
    ),
    "rename": (
        (
            "diff --git a/vllm/models.py b/vllm/model.py\nsimilarity index 100%\n"
            f"rename from vllm/models.py\nrename to vllm/model.py\n{foreign.GIT}"
        ),
        (
            "an overlay cannot rename a module, for its old name would stay: "
            "vllm/models.py to vllm/model.py"
        ),
    ),
    "binary": (
        (
            "diff --git a/vllm/k.so b/vllm/k.so\nindex 1234567..89abcde 100644\n"
            "Binary files a/vllm/k.so and b/vllm/k.so differ\n"
        ),
        "a binary file cannot be carried: vllm/k.so",
    ),
    "git's binary": (
        (
            "diff --git a/vllm/k.so b/vllm/k.so\nnew file mode 100644\nindex 0000000..e69de29\n"
            "GIT binary patch\nliteral 3\nKcmZQzU|?imU}69O00002\n\nliteral 0\nHcmV?d00001\n\n"
        ),
        "a binary file cannot be carried: vllm/k.so",
    ),
    "mode": (
        "diff --git a/vllm/models.py b/vllm/models.py\nold mode 100644\nnew mode 100755\n",
        "only the file mode is changed, and an overlay has none: vllm/models.py",
    ),
    "link": (
        f"diff --git a/vllm/l.py b/vllm/l.py\n{_LINK}",
        "an overlay has no links and no submodules: vllm/l.py",
    ),
    "changed data": (
        (
            "--- a/vllm/engine/configs/E=1.json\n+++ b/vllm/engine/configs/E=1.json\n"
            "@@ -1 +1 @@\n-{}\n+[]\n"
        ),
        "an overlay can add a data file, not change one: vllm/engine/configs/E=1.json",
    ),
    "neither module nor data": (
        "--- /dev/null\n+++ b/vllm/k.cu\n@@ -0,0 +1 @@\n+int x;\n",
        "is not a Python module, nor data (.json, .jinja, .toml, .txt, .yaml): vllm/k.cu",
    ),
    "no name of a module": (
        "--- /dev/null\n+++ b/vllm/new-one.py\n@@ -0,0 +1 @@\n+X = 1\n",
        "cannot be imported: each component must be an identifier: vllm/new-one.py",
    ),
    "out of the package": (
        "--- a/vllm/../../secret.py\n+++ b/vllm/../../secret.py\n@@ -1 +1 @@\n-a\n+b\n",
        "has an empty, '.' or '..' component: vllm/../../secret.py",
    ),
    "white space within a text": (
        foreign.PLAIN.replace("abs(y)", 'y, """x \n+"""').replace("1,7 @@", "1,8 @@"),
        (
            "no diff of a queue can tell it, whitespace damage: an added line ends in white space: "
            "vllm/models.py"
        ),
    ),
    "CR LF in the base": (
        "--- a/vllm/dos.py\n+++ b/vllm/dos.py\n@@ -1,2 +1,2 @@\n-ONE = 1\n+ONE = 3\n TWO = 2\n",
        "has line ends CR LF in the base, which no diff of a queue can tell: vllm/dos.py",
    ),
    "wrapped": (
        foreign.PLAIN.replace("     y = x\n", "     y =\nx\n"),
        (
            "cannot be read as a unified diff: {source}, line 6 (the hunk ends before its header "
            "says (5 old and 5 new lines are missing): cut off, or wrapped by a mail program)"
        ),
    ),
    "cut off": (
        foreign.PLAIN[: foreign.PLAIN.index("+    return")],
        "cannot be read as a unified diff: {source}, line 8 (the hunk ends before its header says",
    ),
    "goes on": (
        foreign.PLAIN.replace("1,7 @@", "1,6 @@").replace("-1,7", "-1,6") + "+x\n",
        "{source}, line 11 (the hunk goes on where its header says that it ends)",
    ),
    "a hunk without a file": (
        foreign.HUNK,
        "cannot be read as a unified diff: {source}, line 1 (a hunk that belongs to no file)",
    ),
    "a new file of which only the header is left": (
        "diff --git a/vllm/m.py b/vllm/m.py\nnew file mode 100644\nindex 0000000..1234567\n",
        "{source}, line 1 (b/vllm/m.py is named, and no hunk follows)",
    ),
    "a header without a hunk": (
        f"--- a/vllm/engine/core.py\n+++ b/vllm/engine/core.py\n{foreign.PLAIN}",
        "{source}, line 1 (b/vllm/engine/core.py is named, and no hunk follows)",
    ),
    "a file that only one tree has": (
        f"{foreign.PLAIN}Only in b/vllm: new.py\n",
        "{source}, line 12 (a file that only one tree has; make the diff with diff -N)",
    ),
    "a context diff": (
        "*** a/vllm/models.py\n--- b/vllm/models.py\n***************\n*** 1,2 ****\n",
        "{source}, line 3 (a context diff; make it with diff -u)",
    ),
    "a merge": (
        (
            "diff --cc vllm/models.py\nindex 1,2..3\n--- a/vllm/models.py\n+++ b/vllm/models.py\n"
            "@@@ -1,1 -1,1 +1,1 @@@\n++x\n"
        ),
        "(the combined diff of a merge; import its commits one by one)",
    ),
    "a log": (
        f"commit {'1' * 40}\n\n{foreign.GIT}\ncommit {'2' * 40}\n\n{foreign.GIT}",
        "(several commits in one file; write them with git format-patch)",
    ),
    "a submodule": (
        f"{foreign.PLAIN}Submodule vllm/third 1111111..2222222:\n",
        "(a change of a submodule)",
    ),
    "an empty file of Subversion": (
        f"Index: vllm/new.py\n{'=' * 67}\nIndex: vllm/models.py\n{'=' * 67}\n{foreign.PLAIN}",
        "(Index: vllm/new.py: no diff of it follows)",
    ),
    "nothing": (
        "--- a/vllm/engine/core.py\n+++ b/vllm/engine/core.py\n@@ -1 +1 @@\n-RUNS = 0\n+RUNS = 0\n",
        "changes nothing in vllm/: {source}",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_come_in_is_named(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = importer.source(text)
    assert importer.run(file) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: nothing was imported:\n")
    assert message.format(source=file) in told.err
    assert not importer.directory.exists()


def test_the_worst_comes_first_grouped_in_ten_lines(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text for name, (text, _) in REFUSED.items() if name not in ("nothing", "a merge")]
    outside = foreign.added(*(f"csrc/{n}.cu" for n in range(9)))
    files = [importer.source(text, f"{n}.patch") for n, text in enumerate([outside, *texts])]
    assert importer.run(*files) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert "cannot be read as a unified diff: " in lines[1]
    assert lines[2] == (
        "  an overlay cannot delete a module: vllm/models.py, vllm/engine/__init__.py"
    )
    assert re.fullmatch(r"  and \d more reasons", lines[-1])


def test_files_outside_are_left_out_only_if_the_user_says_so(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["csrc/x.cu", "tests/test_x.py", "setup.py", "a/b.py", "c.py", "d.py"]
    file = importer.source(foreign.GIT + foreign.added(*names) + _removed("requirements.txt"))
    assert importer.run(file) == 1
    assert capsys.readouterr().err == (
        "error: nothing was imported:\n  lies outside vllm/: csrc/x.cu, tests/test_x.py, setup.py, "
        "a/b.py, c.py and 2 more; --drop-outside leaves such files out\n"
    )
    assert importer.run(file, id="it", drop_outside=True) == 0
    assert importer.variants() == {"it": foreign.STRICT}
    assert "left out: csrc/x.cu, tests/test_x.py" in capsys.readouterr().out


def _removed(name: str) -> str:
    return f"--- a/{name}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


def test_of_a_patch_that_lies_outside_nothing_is_left(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    file = importer.source(foreign.added("csrc/x.cu"))
    assert importer.run(file, drop_outside=True) == 1
    assert "changes nothing in vllm/" in capsys.readouterr().err


def test_a_file_of_the_same_name_outside_is_not_taken_for_one_of_the_package(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    core = foreign.FILES["vllm/engine/core.py"]
    elsewhere = f"--- a/engine/core.py\n+++ b/engine/core.py\n@@ -1 +1 @@\n-{core}+RUNS = 1\n"
    assert importer.bring(foreign.PLAIN + elsewhere) == 1
    assert "lies outside vllm/: engine/core.py" in capsys.readouterr().err


def test_strip_and_prefix_override_what_is_found_out(importer: foreign.Importer) -> None:
    new = foreign.added("deep/new/model.py").replace("+x", "+X = 1")
    assert importer.bring(new, id="it", strip=2, prefix="vllm/engine") == 0
    assert list(importer.served()) == ["vllm/engine/new/__init__.py", "vllm/engine/new/model.py"]
    file = importer.source(new.replace("deep/", ""))
    assert importer.run(file, id="that", prefix="vllm") == 0
    assert "+++ b/vllm/new/model.py\n" in importer.variants()["that"]


ADDED: dict[str, tuple[str, dict[str, str]]] = {
    "an empty module": (
        (
            "diff --git a/vllm/n/__init__.py b/vllm/n/__init__.py\nnew file mode 100644\n"
            "index 0000000..e69de29\n"
        ),
        {"vllm/n/__init__.py": ""},
    ),
    "a package": (
        "".join(
            f"diff --git a/{name} b/{name}\nnew file mode 100755\n{foreign.added(name)}"
            for name in ("vllm/n/__init__.py", "vllm/n/m.py")
        ).replace("+x", "+X = 1"),
        {"vllm/n/__init__.py": "X = 1\n", "vllm/n/m.py": "X = 1\n"},
    ),
    "a module of a package that is not there": (
        foreign.added("vllm/n/o/m.py").replace("+x", "+X = 1"),
        {"vllm/n/__init__.py": "", "vllm/n/o/__init__.py": "", "vllm/n/o/m.py": "X = 1\n"},
    ),
    "diff -N's new module": (
        (
            "--- a/vllm/m.py\t1970-01-01 00:00:00 +0000\n"
            "+++ b/vllm/m.py\t2026-01-01 00:00:00 +0000\n"
            "@@ -0,0 +1 @@\n+X = 1\n"
        ),
        {"vllm/m.py": "X = 1\n"},
    ),
    "tabs": (
        foreign.added("vllm/m.py").replace(
            "+1 @@\n+x", "+1,3 @@\n+def f():\n+\tif 1:\n+\t    return 1"
        ),
        {"vllm/m.py": "def f():\n        if 1:\n            return 1\n"},
    ),
    "blanks in a docstring": (
        foreign.added("vllm/m.py").replace("+1 @@\n+x", '+1,2 @@\n+"""It \n+\tis."""'),
        {"vllm/m.py": '"""It\n        is."""\n'},
    ),
    "data": (
        foreign.added("vllm/engine/configs/E=8,N=1,device_name=A(R)_[1].json").replace("+x", "+{}"),
        {"vllm/engine/configs/E=8,N=1,device_name=A(R)_[1].json": "{}\n", **foreign.BESIDE},
    ),
    "data with blanks and tabs": (
        (
            foreign.added("vllm/new/a.jinja", "vllm/new/b.txt").replace("+x", "+\tx \t")
            + foreign.added("vllm/new/__init__.py")
        ),
        {
            "vllm/new/__init__.py": "x\n",
            **dict.fromkeys(("vllm/new/a.jinja", "vllm/new/b.txt"), "\tx \t\n"),
        },
    ),
    "data without a line end": (
        (
            foreign.added("vllm/new/__init__.py", "vllm/new/a.txt")
            + "\\ No newline at end of file\n"
        ),
        {"vllm/new/__init__.py": "x\n", "vllm/new/a.txt": "x"},
    ),
    "what fills an empty module": (
        "--- a/vllm/engine/__init__.py\n+++ b/vllm/engine/__init__.py\n@@ -0,0 +1 @@\n+X = 1\n",
        {"vllm/engine/__init__.py": "X = 1\n"},
    ),
    "a copy": (
        "diff --git a/vllm/models.py b/vllm/copied.py\nsimilarity index 90%\n"
        "copy from vllm/models.py\ncopy to vllm/copied.py\n"
        + foreign.PLAIN.replace("b/vllm/models.py", "b/vllm/copied.py"),
        {"vllm/copied.py": foreign.CHANGED},
    ),
}


@pytest.mark.parametrize(("text", "files"), ADDED.values(), ids=ADDED)
def test_new_files_come_in(importer: foreign.Importer, text: str, files: Mapping[str, str]) -> None:
    assert importer.bring(text, id="it") == 0
    assert importer.served() == files


def test_a_new_file_that_is_there_is_a_conflict(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.added("vllm/models.py")) == 1
    assert "vllm/models.py: the patch adds this file, but it is there already" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "text",
    [*foreign.SHAPES.values(), *(text for text, _ in ADDED.values())],
    ids=[*foreign.SHAPES, *ADDED],
)
def test_what_was_imported_and_shown_imports_to_the_same_bytes(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert importer.bring(text, id="it") == 0
    capsys.readouterr()
    assert importer.command("show", "it", foreign.RELEASE) == 0
    shown = capsys.readouterr().out
    assert importer.bring(shown, id="it", queue="again") == 0
    assert importer.variants("again") == importer.variants() == {"it": shown}
    series = [(importer.root / q / "series.toml").read_bytes() for q in ("again", "acme")]
    assert series[0] == series[1].replace(b"acme", b"again")
