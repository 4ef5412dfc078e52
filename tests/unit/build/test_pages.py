"""The generated pages: whatever the texts of a queue hold, and whatever the README has become."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from build_hooks import cli
from tests.support import stand_in

if TYPE_CHECKING:
    from tests.support.project import Small

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
README = f"# Title\n\n{BEGIN}\n{END}\n\nRest.\n"


@pytest.fixture
def fresh(project: Small) -> Small:
    """Give a project whose generated pages are fresh."""
    project.readme.write_text(README)
    write(project)
    return project


def write(project: Small) -> None:
    assert cli.main(["docs"], project) == 0
    assert cli.main(["lint"], project) == 0


def cells(row: str) -> list[str]:
    """Read a row of a table as GitHub does: a pipe after an odd number of backslashes is text."""
    found = re.fullmatch(r"\|((?:[^|\\]|\\.)*\|)+", row)
    assert found, row
    parts = re.findall(r"((?:[^|\\]|\\.)*)\|", row[1:])
    return [re.sub(r"\\([\\|])", r"\1", part).strip() for part in parts]


def table(text: str) -> list[list[str]]:
    return [cells(line) for line in text.splitlines() if line.startswith("|")]


def page(project: Small, patch: str) -> str:
    return (project.pages / f"{patch}.md").read_text()


def test_docs_writes_and_removes_pages(fresh: Small, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(path.stem for path in fresh.pages.iterdir()) == sorted(stand_in.PATCHES)
    text = fresh.readme.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n| patch | what you get |")
    assert text.endswith(f"\n{END}\n\nRest.\n")
    rows = table(text)
    assert [(row[0], row[2], row[3]) for row in rows[2:5]] == [
        ("[sqrt](docs/patches/sqrt.md)", "always", "0.25.0 to 0.29.0"),
        ("[scale](docs/patches/scale.md)", "`NRL_VLLM_SCALE`", "0.25.0 to 0.29.0"),
        ("[head](docs/patches/head.md)", "always", "0.25.0 to 0.26.0"),
    ]
    assert rows[4][4] == "[vllm#8](https://github.com/vllm-project/vllm/pull/8)"
    assert rows[7:] == [
        ["0.25.0", "3 of 3", "engine"],
        ["0.26.0", "3 of 3", "engine"],
        ["0.29.0", "2 of 3", "engine"],
    ]
    (fresh.pages / "old.md").write_text("")
    (fresh.pages / "sqrt.md").write_text("")
    capsys.readouterr()
    assert cli.main(["lint"], fresh) == 1
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == [
        "docs/patches/sqrt.md",
        "docs/patches/old.md",
    ]
    assert cli.main(["docs"], fresh) == 0
    assert capsys.readouterr().out == (
        "docs/patches/sqrt.md: written\ndocs/patches/old.md: removed\n"
    )
    write(fresh)
    assert fresh.readme.read_text() == text


TEXTS = [
    r"a \1 and a \g<0>, C:\new",
    "one | two || three",
    r"escaped \| and \\| and a last one \|",
    "two\nlines\n\n# and no heading",
    f"ends the table?\n{END}\n",
    f"{BEGIN}",
    "<b>&amp;*x*`y`",
]


@pytest.mark.parametrize("text", TEXTS)
def test_notes_and_reasons_may_hold_any_text(fresh: Small, text: str) -> None:
    stand_in.write_patch(
        fresh.queue, "sqrt", stand_in.PATCHES["sqrt"], notes={"0.26.0": text}, why=text, risk=text
    )
    fields: dict[str, Any] = {**stand_in.FIELDS["head"], "not-needed": {"0.29.0": text}}
    stand_in.write_patch(fresh.queue, "head", stand_in.PATCHES["head"], **fields)
    fresh.lock(*stand_in.RELEASES)
    for _ in range(2):
        write(fresh)
        one_line = " ".join(text.split())
        assert table(page(fresh, "sqrt"))[2:] == [
            ["0.25.0", "applied", "engine", ""],
            ["0.26.0", "applied", "engine", one_line],
            ["0.29.0", "applied", "engine", ""],
        ]
        assert table(page(fresh, "head"))[-1] == ["0.29.0", "not needed", "", one_line]
        readme = fresh.readme.read_text()
        assert [row[0] for row in table(readme)][2:5] == [
            f"[{name}](docs/patches/{name}.md)" for name in stand_in.PATCHES
        ]
        assert readme.endswith("\n\nRest.\n")


@pytest.mark.parametrize(
    "readme",
    [
        "# Title\n",
        f"{BEGIN}\n",
        f"{END}\n",
        f"{END}\n{BEGIN}\n",
        README * 2,
        README + BEGIN + "\n",
        README + END,
        f"{BEGIN} {END}\n",
    ],
)
def test_a_readme_needs_one_place_for_the_table(
    fresh: Small, capsys: pytest.CaptureFixture[str], readme: str
) -> None:
    fresh.readme.write_text(readme)
    for command in (["docs"], ["lint"]):
        capsys.readouterr()
        assert cli.main(command, fresh) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            f"error: {fresh.readme} needs one line '{BEGIN}' and one '{END}' below it: the table "
            "of patches goes between them\n"
        )
    assert fresh.readme.read_text() == readme


def test_a_readme_may_end_with_its_table(fresh: Small) -> None:
    fresh.readme.write_text(f"{BEGIN}\n{END}")
    write(fresh)
    assert fresh.readme.read_text().endswith(f"\n{END}")


def test_what_is_no_page_is_told(fresh: Small, capsys: pytest.CaptureFixture[str]) -> None:
    (fresh.pages / "sqrt.md").write_bytes(b"\xff")
    assert cli.main(["lint"], fresh) == 1
    assert "docs/patches/sqrt.md is not fresh" in capsys.readouterr().err
    write(fresh)
    (fresh.pages / "sqrt.md").unlink()
    (fresh.pages / "sqrt.md").mkdir()
    fresh.readme.unlink()
    for path in ("README.md: No such file", "docs/patches/sqrt.md: Is a directory"):
        capsys.readouterr()
        assert cli.main(["docs"], fresh) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert path in line
        fresh.readme.write_text(README)


@pytest.mark.parametrize(
    ("note", "fixed", "told"),
    [
        ("", "", ""),
        ("does it", "", ": does it"),
        ("", "0.27", ": first release with it: 0.27.0"),
        ("raises an error", "0.27.0", ": raises an error; first release with it: 0.27.0"),
        ("Raises an error.", "0.27.0", ": Raises an error; first release with it: 0.27.0"),
    ],
)
def test_an_upstream_reference_reads_as_one_sentence(
    fresh: Small, note: str, fixed: str, told: str
) -> None:
    reference = {"kind": "pull", "ref": "a/b#1"}
    reference |= {"note": note} if note else {}
    reference |= {"fixed-in": fixed} if fixed else {}
    fields: dict[str, Any] = {"upstream": [reference], "title": "Ends."}
    stand_in.write_patch(fresh.queue, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    write(fresh)
    text = page(fresh, "sqrt")
    assert f"\n- [a/b#1](https://github.com/a/b/pull/1) (pull){told}\n" in text
    assert "\nEnds.\n" in text


def test_a_page_says_why_there_is_logic_in_the_diff(fresh: Small) -> None:
    once = "+    x = float(x)\n"
    diff = stand_in.PATCHES["sqrt"]["0.25.0"].replace("+4,3", "+4,13").replace(once, 11 * once)
    stand_in.write_patch(fresh.queue, "sqrt", {"0.25.0": diff}, logic="It is long.")
    fresh.lock(*stand_in.RELEASES)
    write(fresh)
    assert "\n## Logic in the diff\n\nIt is long.\n" in page(fresh, "sqrt")


def test_every_page_says_what_its_patch_says(fresh: Small) -> None:
    text = page(fresh, "scale")
    headings = re.findall("^## (.*)$", text, flags=re.MULTILINE)
    assert headings == ["Why", "Risk", "Switch", "Releases", "When it can go", "Upstream"]
    assert "Off unless `NRL_VLLM_SCALE` is set at run time." in text
    assert "None: it is on wherever the overlay is." in page(fresh, "sqrt")
    assert "Needed for vLLM `<0.29,>=0.25.0`." in page(fresh, "head")
