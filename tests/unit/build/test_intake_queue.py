"""``import``: the queue that it writes, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_hooks import cli
from tests.support import foreign, stand_in


@pytest.fixture
def importer(tmp_path: Path) -> foreign.Importer:
    return foreign.Importer.make(tmp_path)


def test_a_queue_is_made_and_added_to(importer: foreign.Importer) -> None:
    assert importer.bring(foreign.MAIL, queue="My_Queue+x") == 0
    series = importer.root / "My_Queue+x" / "series.toml"
    assert series.read_text() == (
        'name = "my.queue.x"\nrevision = 1\nreleases = ["0.29.0"]\n'
        'patches = [\n    "models-never-negative",\n]\n'
    )
    text = series.read_text().replace("revision = 1", "revision = 4  # by hand")
    series.write_text(f"# Ours.\n{text}")
    assert importer.bring(foreign.added("vllm/a.txt"), id="b", queue="My_Queue+x") == 0
    assert series.read_text() == (
        '# Ours.\nname = "my.queue.x"\nrevision = 4  # by hand\nreleases = ["0.29.0"]\n'
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
    other = importer.source(foreign.added("vllm/a.txt"), "it.patch")
    for arguments, told in (
        ({"id": "It"}, "'It' is not an id"),
        ({}, "the queue has it already"),
    ):
        assert importer.run(other, **arguments) == 1
        assert told in capsys.readouterr().err
    assert importer.run(other, other, id="two") == 1
    assert "--id goes with one patch; there are 2:\n  it\n  it" in capsys.readouterr().err
    more = [importer.source(foreign.added(f"vllm/{n}.txt"), f"{n}/000{n}-same.patch") for n in "12"]
    assert importer.run(*more) == 0
    assert [patch.id for patch in importer.queue.patches] == ["it", "same", "same-2"]


def test_a_release_that_the_queue_does_not_have(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write_wheel(importer.root / "wheels", "0.28.0", files=foreign.FILES)
    assert importer.bring(foreign.GIT, id="it") == 0
    place = ["--queue", str(importer.directory), "--wheels", str(importer.root / "wheels")]
    file = str(importer.source(foreign.added("vllm/a.txt")))
    assert cli.main(["import", *place, "--release", "0.28", file], importer.project) == 1
    assert "0.28.0 is not in" in capsys.readouterr().err


def test_a_directory_that_is_no_queue_is_left_alone(
    importer: foreign.Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write(importer.directory, {"notes.txt": "mine"})
    assert importer.bring(foreign.GIT) == 1
    assert "is no queue (no series.toml), and not empty" in capsys.readouterr().err
    assert [path.name for path in importer.directory.iterdir()] == ["notes.txt"]
