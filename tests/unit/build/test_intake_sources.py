"""``import``: mailboxes, commits, edited trees, and what they say of themselves."""

from __future__ import annotations

import base64
import subprocess
from email.header import Header
from pathlib import Path

import pytest

from build_hooks.intake import message
from tests.support import foreign, stand_in


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path)


def _git(repository: Path, *arguments: str) -> str:
    """Run git, apart from the settings of whoever runs the tests."""
    identity = ["-c", "user.name=Zoë", "-c", "user.email=zoe@example.org"]
    process = subprocess.run(
        ["git", "-C", str(repository), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(repository)},
    )
    return process.stdout.strip()


def _commit(repository: Path, subject: str, **files: str) -> str:
    stand_in.write(repository, {name.replace("__", "/") + ".py": t for name, t in files.items()})
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--message", subject)
    return _git(repository, "rev-parse", "HEAD")


@pytest.fixture
def repository(importer: foreign.Importer) -> Path:
    """Return a repository of three commits after the release; the last changes the first's line."""
    root = stand_in.write(importer.root / "repository", foreign.FILES)
    _git(root, "init", "--quiet")
    _commit(root, "The release")
    _git(root, "tag", "release")
    _commit(
        root, "models: naïve, but never negative (#12)\n\nBecause.", vllm__models=foreign.CHANGED
    )
    _commit(root, "[Core] Count the runs", vllm__engine__core="RUNS = 1\n", vllm__new="NEW = 1\n")
    last = foreign.CHANGED.replace("abs(y)", "abs(int(y))")
    _commit(root, "models: whole numbers", vllm__models=last, vllm__new="NEW = 2\n")
    return root


IDS = ["models-naive-but-never-negative", "core-count-the-runs", "models-whole-numbers"]


def _check_three(importer: foreign.Importer) -> None:
    queue = importer.stack().top
    assert [patch.id for patch in queue.patches] == IDS
    first, second, third = queue.patches
    assert first.title == "models: naïve, but never negative (#12)"
    assert first.why == "Because."
    assert second.title == "[Core] Count the runs"
    assert (first.amends, second.amends, third.amends) == ((), (), tuple(sorted(IDS[:2])))
    assert str(first.vllm) == f">={foreign.RELEASE}"
    assert "# Author: Zoë <zoe@example.org>\n" in (
        importer.directory / "patches" / first.id / "patch.toml"
    ).read_text(encoding="utf-8")
    assert importer.variants()[IDS[0]] == foreign.STRICT
    assert importer.served() == {
        "vllm/engine/core.py": "RUNS = 1\n",
        "vllm/models.py": foreign.CHANGED.replace("abs(y)", "abs(int(y))"),
        "vllm/new.py": "NEW = 2\n",
    }


def test_a_mailbox_gives_a_patch_a_message(importer: foreign.Importer, repository: Path) -> None:
    box = _git(repository, "format-patch", "--stdout", "--cover-letter", "release")
    assert importer.bring(box) == 0
    _check_three(importer)


def test_commits_are_named_by_their_range(importer: foreign.Importer, repository: Path) -> None:
    # What a person has set for git does not change what comes in.
    for name in ("noprefix", "mnemonicPrefix"):
        _git(repository, "config", f"diff.{name}", "true")
    _git(repository, "config", "diff.context", "0")
    _git(repository, "config", "format.attach", "x")
    assert importer.run(f"{repository}:release..HEAD") == 0
    _check_three(importer)


def test_a_single_commit_is_named_alone(importer: foreign.Importer, repository: Path) -> None:
    assert importer.run(f"{repository}:HEAD~2", id="it") == 0
    assert importer.variants() == {"it": foreign.STRICT}


def test_files_of_several_sources_come_in_in_their_order(
    importer: foreign.Importer, repository: Path
) -> None:
    _git(repository, "format-patch", "--quiet", "--output-directory", "out", "release")
    files = sorted((repository / "out").iterdir())
    assert importer.run(files[0]) == 0
    assert importer.run(*files[1:], amends=IDS[0]) == 0
    _check_three(importer)


def test_commits_that_are_not_there(
    importer: foreign.Importer, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _git(repository, "checkout", "--quiet", "-b", "side", "HEAD~1")
    _commit(repository, "aside", vllm__aside="A = 1\n")
    _git(repository, "merge", "--quiet", "--message", "merge", "@{-1}")
    for source, told in {
        f"{repository}:release..HEAD": "has 1 merges",
        f"{repository}:HEAD": "has 1 merges",
        f"{repository}:nobody": "has no commit 'nobody'",
        f"{repository}:--output=x": "has no commit '--output=x'",
        f"{repository}:HEAD..HEAD": "has no commits",
        f"{importer.root}/wheels:HEAD": "git rev-parse failed",
        f"{importer.root}/nowhere:HEAD": "cannot be read: No such file or directory; commits are",
        f"{importer.root}/in": "cannot be read",
    }.items():
        assert importer.run(source) == 1
        assert told in capsys.readouterr().err
    assert not (repository / "x").exists()


def test_all_or_nothing(
    importer: foreign.Importer, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.added("vllm/a.py"), id="first") == 0
    before = importer.files()
    box = _git(repository, "format-patch", "--stdout", "release").replace("RUNS = 0", "RUNS = 9")
    assert importer.bring(box) == 1
    told = capsys.readouterr().err
    # The third patch follows from the second; its own conflict would be no news.
    assert "1 conflict" in told
    assert f"Not tried, for they change the same files: {IDS[2]}" in told
    assert f"{IDS[1]} ({foreign.RELEASE}.patch): vllm/engine/core.py, hunk 1: not found" in told
    assert importer.files() == before


def test_what_cannot_be_written_leaves_nothing_behind(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.added("vllm/a.py"), id="first") == 0
    before = importer.files()
    # In the way of the last file that is written.
    (importer.directory / "series.toml.new").mkdir()
    assert importer.bring(foreign.GIT, id="second") == 1
    assert "series.toml.new cannot be written: Is a directory" in capsys.readouterr().err
    assert importer.files() == before
    assert not (importer.directory / "patches" / "second").exists()


def test_an_earlier_patch_is_not_undone_unless_the_user_says_so(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.GIT, id="first") == 0
    undo = foreign.PLAIN.replace("return abs", "return int").replace("return y", "return abs(y)")
    undo = importer.source(undo)
    assert importer.run(undo, id="second") == 1
    told = capsys.readouterr().err
    assert "undoes first: it takes out line 4, which first put in: 'return abs(y)'" in told
    assert "import it with --amends first" in told
    assert importer.run(undo, id="second", amends="first") == 0
    assert importer.patches[1].amends == ("first",)
    assert "return int(y)" in importer.served()["vllm/models.py"]


def test_a_hunk_that_an_earlier_patch_displaced_names_it(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert importer.bring(foreign.GIT, id="first") == 0
    other = importer.source(foreign.PLAIN.replace("abs(y)", "int(y)"))
    assert importer.run(other, id="second") == 1
    assert "conflicts with first, which comes before it" in capsys.readouterr().err


def _said(text: str | bytes) -> tuple[str, str, str]:
    data = text.encode() if isinstance(text, str) else text
    (patch,) = message.patches(data, "x.patch", "fallback")
    return patch.title, patch.author, patch.text


CODED = base64.encodebytes(f"Café.\n---\n{foreign.GIT}".encode()).decode()
SAID: dict[str, tuple[str, tuple[str, str, str]]] = {
    "nothing": (foreign.GIT, ("fallback", "", "")),
    "a mail": (
        foreign.MAIL,
        (
            "models: never negative",
            "Ana Lopez <ana@example.org>",
            "It was negative for\nnegative numbers.\n\nSigned-off-by: Ana Lopez <ana@example.org>",
        ),
    ),
    "a subject that is folded and coded": (
        foreign.MAIL.replace(
            "Subject: [PATCH v2 3/7] models: never negative",
            f"Subject: [PATCH]\n {Header('ä ' * 40, 'utf-8').encode()}",
        ).replace("Ana Lopez <", "=?utf-8?q?An=C3=A1?= <"),
        (" ".join("ä" * 40), "Aná <ana@example.org>", ""),
    ),
    "a tag that is part of the title": (
        foreign.MAIL.replace("[PATCH v2 3/7] models:", "Re: [RFC PATCH] [Bugfix]"),
        ("[Bugfix] never negative", "Ana Lopez <ana@example.org>", ""),
    ),
    "a mail that somebody else sent": (
        foreign.MAIL.replace("\n\nIt was", "\n\nFrom: Bo <bo@example.org>\n\nIt was"),
        ("models: never negative", "Bo <bo@example.org>", ""),
    ),
    "a mail that is coded": (
        "From: A <a@example.org>\nDate: Tue, 3 Nov 2026 12:00:00 +0000\nSubject: [PATCH] it\n"
        "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n" + CODED,
        ("it", "A <a@example.org>", "Café."),
    ),
    "DEP-3": (
        f"Description: never\n Really\n .\n never.\nAuthor: Ana\nBug: x\n---\n{foreign.GIT}",
        ("never", "Ana", "Really\n\nnever."),
    ),
    "git show": (foreign.SHAPES["git show"], ("never negative", "Ana Lopez <ana@example.org>", "")),
    "one line of prose": (foreign.SHAPES["quilt"], ("Never negative.", "", "")),
    "a paragraph of prose": (f"It is\nlong.\n\n{foreign.GIT}", ("fallback", "", "It is\nlong.")),
}


@pytest.mark.parametrize(("text", "said"), SAID.values(), ids=SAID)
def test_the_title_the_author_and_the_text_are_found(text: str, said: tuple[str, str, str]) -> None:
    found = _said(text)
    assert found[:2] == said[:2]
    if said[2]:
        assert found[2] == said[2]


def test_a_coded_mail_comes_in(importer: foreign.Importer) -> None:
    assert importer.bring(SAID["a mail that is coded"][0]) == 0
    assert importer.variants() == {"it": foreign.STRICT}


def test_an_edited_tree_is_compared_with_the_release(importer: foreign.Importer) -> None:
    tree = stand_in.write(importer.root / "edited", foreign.FILES)
    stand_in.write(
        tree,
        {
            "vllm/models.py": foreign.CHANGED,
            "vllm/new/m.py": "X = 1\n",
            "vllm/engine/configs/E=2.json": "{}\n",
            "vllm/__pycache__/models.cpython-311.pyc": b"\0",
            "vllm/models.py.orig": foreign.MODULE,
        },
    )
    assert importer.run(tree) == 0
    assert list(importer.variants()) == ["edited"]
    assert importer.served() == {
        "vllm/models.py": foreign.CHANGED,
        "vllm/new/__init__.py": "",
        "vllm/new/m.py": "X = 1\n",
        "vllm/engine/configs/E=2.json": "{}\n",
        **foreign.BESIDE,
    }


def test_of_an_edited_tree_too_it_is_said_what_cannot_come_in(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = stand_in.write(
        importer.root / "edited", foreign.FILES | {"vllm/k.cu": "x", "vllm/k.so": b"\0"}
    )
    (tree / "vllm" / "models.py").unlink()
    stand_in.write(tree, {"vllm/engine/configs/E=1.json": "[]\n"})
    assert importer.run(tree) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  an overlay cannot delete a module: vllm/models.py",
        "  an overlay can add a data file, not change one: vllm/engine/configs/E=1.json",
        (
            "  is not a Python module, nor data (.json, .jinja, .toml, .txt, .yaml): "
            "vllm/k.cu, vllm/k.so"
        ),
    ]


def test_a_tree_of_a_few_files_deletes_nothing(importer: foreign.Importer) -> None:
    tree = stand_in.write(importer.root / "edited", {"vllm/models.py": foreign.CHANGED})
    assert importer.run(tree) == 0
    assert importer.variants() == {"edited": foreign.STRICT}


def test_what_a_checkout_lacks_was_not_deleted(
    importer: foreign.Importer, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "vllm" / "_version.py").unlink()
    assert importer.run(repository) == 0
    assert "1 modules of the wheel are not in this checkout" in capsys.readouterr().out


def test_an_edited_tree_comes_on_top_of_earlier_patches(importer: foreign.Importer) -> None:
    files = foreign.FILES | {"vllm/models.py": foreign.MODULE.replace("2 * x", "3 * x")}
    tree = stand_in.write(importer.root / "edited", files)
    assert importer.bring(foreign.GIT, id="first") == 0
    assert importer.run(tree) == 0
    assert importer.served()["vllm/models.py"] == foreign.CHANGED.replace("2 * x", "3 * x")


def test_a_tree_without_changes(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = stand_in.write(importer.root / "edited", foreign.FILES)
    assert importer.run(tree) == 1
    assert f"is as vLLM {foreign.RELEASE} is" in capsys.readouterr().err
    assert importer.run(tree / "vllm") == 1
    assert "contains no vllm/" in capsys.readouterr().err
