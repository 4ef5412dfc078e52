"""``import``: the queue that it writes, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_hooks import cli
from build_hooks.project import Project
from tests.support import foreign, stand_in


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path)


def test_a_queue_is_made_and_added_to(importer: foreign.Importer) -> None:
    assert importer.bring(foreign.MAIL, queue="My_Queue+x") == 0
    series = importer.root / "My_Queue+x" / "series.toml"
    assert series.read_text() == (
        'name = "myqueuex"\nrevision = 1\nreleases = ["0.29.0"]\n'
        'patches = [\n    "models-never-negative",\n]\n'
    )
    text = series.read_text().replace("revision = 1", "revision = 4  # by hand")
    series.write_text(f"# Ours.\n{text}")
    assert importer.bring(foreign.added("vllm/a.py"), id="b", queue="My_Queue+x") == 0
    assert series.read_text() == (
        '# Ours.\nname = "myqueuex"\nrevision = 4  # by hand\nreleases = ["0.29.0"]\n'
        'patches = [\n    "models-never-negative",\n    "b",\n]\n'
    )
    assert (series.parent / "patches" / "models-never-negative" / "patch.toml").read_text() == (
        "# Imported from x.patch\n# Author: Ana Lopez <ana@example.org>\n"
        'title = "models: never negative"\n'
        'why = """It was negative for\nnegative numbers.\n\n'
        'Signed-off-by: Ana Lopez <ana@example.org>"""\n'
        'vllm = ">=0.29.0"\n'
    )


def test_an_id_is_given_once(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    file = importer.source(foreign.GIT)
    assert importer.run(file, id="it") == 0
    other = importer.source(foreign.added("vllm/a.py"), "it.patch")
    for arguments, told in (
        ({"id": "It"}, "'It' is not an id"),
        ({}, "the queue has it already"),
    ):
        assert importer.run(other, **arguments) == 1
        assert told in capsys.readouterr().err
    assert importer.run(other, other, id="two") == 1
    assert "--id goes with one patch; there are 2:\n  it\n  it" in capsys.readouterr().err
    more = [importer.source(foreign.added(f"vllm/n{n}.py"), f"{n}/000{n}-same.patch") for n in "12"]
    assert importer.run(*more) == 0
    assert [patch.id for patch in importer.patches] == ["it", "same", "same-2"]


def test_a_release_that_the_queue_does_not_have(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write_wheel(importer.root / "wheels", "0.28.0", files=foreign.FILES)
    assert importer.bring(foreign.GIT, id="it") == 0
    assert importer.bring(foreign.added("vllm/a.py"), release="0.28") == 1
    assert "0.28.0 is not in series.toml; add it to `releases` first" in capsys.readouterr().err


def test_patches_come_on_top_of_the_projects_own(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    own = importer.root / "overlay"
    fields = {"title": "Own", "why": "x", "risk": "x", "removal": "x"}
    stand_in.write_patch(own, "own", {foreign.RELEASE: foreign.STRICT}, vllm=">=0.29", **fields)
    text = (own / "series.toml").read_text()
    (own / "series.toml").write_text(
        text.replace('"0.28.0", ', "").replace("patches = []", 'patches = ["own"]')
    )
    other = foreign.PLAIN.replace("abs(y)", "int(y)")
    assert importer.bring(other, id="it") == 1
    assert "conflicts with own, which comes before it" in capsys.readouterr().err
    assert importer.run(importer.source(other), "--patches=-own", id="it") == 0


def test_patches_can_go_to_the_projects_own_queue(importer: foreign.Importer) -> None:
    assert importer.bring(foreign.GIT, queue="overlay", id="it") == 0
    assert importer.variants("overlay") == {"it": foreign.STRICT}
    series = (importer.root / "overlay" / "series.toml").read_text()
    assert series == 'releases = ["0.28.0", "0.29.0"]\nrevision = 1\npatches = ["it"]\n'


def test_without_a_queue_nothing_is_imported(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(importer.source(foreign.GIT))
    assert cli.main(["import", "--release", "0.29.0", source], Project(importer.root)) == 1
    assert "name the queue that the patches go to" in capsys.readouterr().err


def test_a_directory_that_is_no_queue_is_left_alone(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(importer.directory, {"notes.txt": "mine"})
    assert importer.bring(foreign.GIT) == 1
    assert "is no queue (no series.toml), and not empty" in capsys.readouterr().err
    assert [path.name for path in importer.directory.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("directory", "name"), [("acme", "acme"), ("2nd", "queue2nd"), ("_", "queue"), ("Ä-b.C", "bc")]
)
def test_the_name_of_a_new_queue_is_one_that_can_be_read(
    importer: foreign.Importer, directory: str, name: str
) -> None:
    assert importer.bring(foreign.GIT, queue=directory, id="it") == 0
    assert importer.stack(directory).top.name == name
