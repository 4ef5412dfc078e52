"""The patch x release table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from build_hooks.bases.directory import from_directory
from build_hooks.errors import QueueError
from build_hooks.upkeep import status
from tests.support import stand_in

if TYPE_CHECKING:
    from tests.support.project import Small


def outcomes(cells: list[status.Cell]) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for cell in cells:
        table.setdefault(cell.patch, []).append(cell.outcome)
    return table


GOOD = {
    "sqrt": ["applied", "applied", "applied"],
    "scale": ["applied", "applied", "applied"],
    "head": ["applied", "applied", "not-needed"],
}


def test_the_table_comes_from_the_locks(project: Small) -> None:
    cells = status.from_locks(project.load().own)
    assert outcomes(cells) == GOOD
    assert status.good(cells)
    assert status.as_text(cells) == (
        "patch  0.25.0   0.26.0   0.29.0\n"
        "-----  -------  -------  ----------\n"
        "sqrt   applied  applied  applied\n"
        "scale  applied  applied  applied\n"
        "head   applied  applied  not-needed\n"
        "\n"
        "scale on 0.29.0: Read the new comment.\n"
        "head on 0.29.0: Upstream returns a float.\n"
    )
    assert status.as_markdown(cells) == (
        "| patch | 0.25.0 | 0.26.0 | 0.29.0 |\n"
        "| --- | --- | --- | --- |\n"
        "| sqrt | applied | applied | applied |\n"
        "| scale | applied | applied | applied |\n"
        "| head | applied | applied | not-needed |\n"
        "\n"
        "- scale on 0.29.0: Read the new comment.\n"
        "- head on 0.29.0: Upstream returns a float.\n"
    )
    assert status.as_json(cells)[0] == {
        "patch": "sqrt",
        "base": "0.25.0",
        "outcome": "applied",
        "remark": "",
        "level": "engine",
    }


def test_a_missing_lock_is_told(project: Small) -> None:
    (project.queue / "locks" / "0.26.0.json").unlink()
    cells = status.from_locks(project.load().own)
    assert outcomes(cells)["sqrt"] == ["applied", "unlocked", "applied"]
    assert not status.good(cells)
    assert "sqrt on 0.26.0: lock 0.26.0 is missing" in status.as_text(cells)


@pytest.mark.parametrize("name", ["0.25.0", "0.29.0"])
def test_a_changed_diff_is_stale_where_it_is_used(project: Small, name: str) -> None:
    project.edit(project.variant("scale", name), "FACTOR * x", "x * FACTOR")
    cells = status.from_locks(project.load().own)
    stale = {"0.25.0": ["stale", "stale", "applied"], "0.29.0": ["applied", "applied", "stale"]}
    assert outcomes(cells) == GOOD | {"scale": stale[name]}
    assert not status.good(cells)
    assert "python -m build_hooks lock 0." in status.as_text(cells)


def test_a_patch_that_is_new_or_no_longer_needed_is_stale(project: Small) -> None:
    stand_in.write_series(project.queue, ["sqrt", "scale", "head", "more"])
    stand_in.write_patch(project.queue, "more", stand_in.PATCHES["sqrt"])
    fields = {"vllm": "<0.29", "not_needed": {"0.29.0": "Upstream has it."}}
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], **fields)
    cells = status.from_locks(project.load().own)
    assert outcomes(cells) == GOOD | {
        "sqrt": ["applied", "applied", "stale"],
        "more": ["stale", "stale", "stale"],
    }


def test_a_variant_is_stale_in_each_release_that_takes_a_file_from_it(project: Small) -> None:
    project.edit(project.variant("scale", "0.25.0"), "FACTOR = 3", "FACTOR = 4")
    assert outcomes(status.from_locks(project.load().own))["scale"] == ["stale"] * 3


def test_remarks_are_in_the_order_of_patches_and_releases(project: Small) -> None:
    """However they are worded."""
    notes = {"0.25.0": "Zebra.", "0.26.0": "As 0.25.0.", "0.29.0": "As 0.25.0."}
    stand_in.write_patch(project.queue, "sqrt", stand_in.PATCHES["sqrt"], notes=notes)
    project.lock(*stand_in.RELEASES)
    assert status.as_text(status.from_locks(project.load().own)).splitlines()[-4:-1] == [
        "sqrt on 0.25.0: Zebra.",
        "sqrt on 0.26.0, 0.29.0: As 0.25.0.",
        "scale on 0.29.0: Read the new comment.",
    ]


def test_other_bases_are_worked_out(project: Small) -> None:
    models = stand_in.sources("0.29.0")["vllm/models.py"].replace("# Twice.", "# Two.")
    other = project.directory("other", "0.29.0", models=models, _version="version = '0.31.0'\n")
    bases = [project.open(), project.broken("0.26.0"), from_directory(other)]
    cells = status.against(project.load(), bases)
    assert outcomes(cells) == {
        "sqrt": ["applied", "conflict", "applied"],
        "scale": ["applied", "conflict", "conflict"],
        "head": ["not-needed", "conflict", "not-needed"],
    }
    assert list(dict.fromkeys(cell.base for cell in cells)) == ["0.29.0", "0.26.0", "0.31.0"]
    assert not status.good(cells)
    text = status.as_text(cells)
    assert "scale on 0.31.0: scale (0.29.0.patch): vllm/models.py, hunk 1: not found" in text


def test_a_reason_worked_out_is_the_one_that_is_locked(project: Small) -> None:
    worked_out = status.against(project.load(), map(project.open, stand_in.RELEASES))
    # Only a supported release has a level of proof.
    locked = [replace(cell, level="") for cell in status.from_locks(project.load().own)]
    assert sorted(worked_out, key=str) == sorted(locked, key=str)


def test_a_level_of_proof_holds_from_a_release_on(project: Small) -> None:
    series = project.queue / "series.toml"
    series.write_text(series.read_text() + '[proof]\n"0.29.0" = "sources"\n')
    stand_in.write_patch(
        project.queue, "sqrt", stand_in.PATCHES["sqrt"], proof={"0.26.0": "wiring"}
    )
    cells = status.from_locks(project.load().own)
    levels = {(cell.patch, cell.base): cell.level for cell in cells}
    assert [levels["sqrt", base] for base in stand_in.RELEASES] == ["engine", "wiring", "sources"]
    assert [levels["scale", base] for base in stand_in.RELEASES] == ["engine", "engine", "sources"]
    # Nothing to prove where it is not applied.
    assert levels["head", "0.29.0"] == ""


@pytest.mark.parametrize(
    ("proof", "told"),
    [
        ('"0.29" = "engine"', "'0.29' is not a release such as 0.29.0"),
        ('"0.29.0" = "GPU"', "must be one of engine, wiring, sources"),
    ],
)
def test_a_level_of_proof_is_one_of_three(project: Small, proof: str, told: str) -> None:
    series = project.queue / "series.toml"
    series.write_text(series.read_text() + f"[proof]\n{proof}\n")
    with pytest.raises(QueueError, match=told):
        project.load()
