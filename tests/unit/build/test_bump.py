"""``bump``: newer releases are taken in one by one, and it stops where a person is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks import cli
from build_hooks.errors import BuildError
from build_hooks.queues import lock
from build_hooks.upkeep.bump import steps
from tests.support import index, stand_in

if TYPE_CHECKING:
    from tests.support.project import Small

NEXT, LAST = "0.30.0", "0.31.0"
MATRIX = '# Pins.\n[release."0.29.0"]\ntorch = "torch==2.13.0"\n'


@pytest.fixture
def ahead(project: Small, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    """Give the project an index with two newer releases, of which the last is in conflict."""
    stand_in.write(project.root, {"ci/matrix.toml": MATRIX})
    models = stand_in.sources("0.29.0")["vllm/models.py"]
    other = models.replace("math.sqrt(x)", "math.sqrt(x + 0)")
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.cache)
        for release, text in ((NEXT, models), (LAST, other)):
            files = stand_in.sources("0.29.0", models=text)
            wheel = stand_in.write_wheel(project.wheels, release, files=files)
            served.add(wheel)
        yield project


def test_it_walks_and_stops_and_goes_on(ahead: Small, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bump", LAST], ahead) == 1
    told = capsys.readouterr().out
    assert "vLLM 0.30.0, after 0.29.0" in told
    assert "head: not needed, for the reason of 0.29.0" in told
    assert "vLLM 0.31.0, after 0.30.0" in told
    assert "changed; sqrt lies in it" in told
    assert told.splitlines()[-1].endswith("python -m build_hooks bump 0.31.0")
    # The first is whole; of the last, the pins and the reasons are there.
    queue = ahead.load().own
    assert [str(release) for release in queue.releases[-2:]] == [NEXT, LAST]
    assert lock.load(ahead.queue, Version(NEXT)) is not None
    assert lock.load(ahead.queue, Version(LAST)) is None
    assert queue.patches[2].not_needed[Version(LAST)] == "Upstream returns a float."
    pins = "".join(f'\n[release."{r}"]\ntorch = "torch==2.13.0"\n' for r in (NEXT, LAST))
    assert ahead.matrix.read_text() == MATRIX + pins

    tree = ahead.trees(LAST) / "sqrt"
    file = tree / "vllm" / "models.py"
    lines = file.read_text().splitlines(keepends=True)
    begin, middle, end = (
        next(n for n, line in enumerate(lines) if line.startswith(mark)) for mark in "<=>"
    )
    resolved = [*lines[:begin], "        return math.sqrt(abs(x) + 0)\n", *lines[end + 1 :]]
    assert begin < middle < end
    file.write_text("".join(resolved))
    assert cli.main(["refresh", "sqrt", "--release", LAST, "--tree", str(tree)], ahead) == 0
    capsys.readouterr()
    assert cli.main(["bump", LAST], ahead) == 0
    told = capsys.readouterr().out
    assert "vLLM 0.30.0" not in told
    assert "ci/matrix 0.31.0" in told
    locked = lock.load(ahead.queue, Version(LAST))
    assert locked is not None
    assert locked.content["patches"]["sqrt"]["files"]["vllm/models.py"]["variant"] == LAST
    assert ahead.matrix.read_text() == MATRIX + pins


def test_a_wheel_that_is_not_on_the_index_is_not_locked(
    ahead: Small, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = stand_in.sources("0.29.0", _version="version = '0.30.1.dev2'\n")
    wheel = stand_in.write_wheel(tmp_path / "nightly", "0.30.1.dev2", files=files)
    assert cli.main(["bump", str(wheel)], ahead) == 0
    assert "is no release of the index yet" in capsys.readouterr().out
    assert not ahead.lock_file("0.30.1").exists()
    assert ahead.lock_file(NEXT).exists()


def test_what_cannot_be_walked_to(project: Small) -> None:
    queue = project.load().own
    known = [Version(text) for text in ("0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")]
    assert steps(queue, known, Version(LAST)) == (
        Version("0.29.0"),
        [Version(NEXT), Version(LAST)],
    )
    with pytest.raises(BuildError, match=r"0\.29\.0 is not newer than 0\.29\.0, which is locked"):
        steps(queue, known, Version("0.29.0"))
