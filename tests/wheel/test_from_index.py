"""A wheel built from an index that serves ranges: the same one, and what that costs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks.bases.cache import open_release
from build_hooks.project import Project
from build_hooks.queues import lock
from build_hooks.queues.stack import stack
from tests.support import index, source, stand_in

if TYPE_CHECKING:
    from build_hooks.bases.wheel import WheelBase

NAME = "vllm_nemo-0.29.0.1-py3-none-any.whl"


@pytest.fixture
def served(original: source.Tree) -> Iterator[index.Index]:
    with index.serve() as served:
        for release in stand_in.RELEASES:
            served.add(original.wheel(release))
        yield served


@pytest.mark.parametrize("front_end", ["plain", "build --wheel", "python -m build_hooks"])
def test_it_is_the_same_wheel_and_nothing_else_is_left(
    original: source.Tree, built: Path, served: index.Index, tmp_path: Path, front_end: str
) -> None:
    places = {"HOME": "home", "TMPDIR": "temporary", "XDG_CACHE_HOME": "cache"}
    env = {name: str(tmp_path / place) for name, place in places.items()}
    for place in env.values():
        Path(place).mkdir()
    # pip asks what Rust there is, and rustup writes its settings when it is asked anything.
    env |= {**index.settings(served.url), "PIP_NO_CACHE_DIR": "1", "PATH": os.defpath}
    before = original.snapshot()
    original.build(front_end, tmp_path / "out", base="0.29.0", env=env)
    assert (tmp_path / "out" / NAME).read_bytes() == built.read_bytes()
    assert served.parts
    assert original.snapshot() == before
    left = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path for path in left if path.parent == Path("cache/vllm-nemo/files")}
    assert len(kept) == 3
    assert {path for path in left - kept if path.name != ".gitignore"} == {Path("out") / NAME}


STACK = stack(Project.here().queue)
QUEUE = STACK.own
RELEASES = [str(release) for release in QUEUE.releases]


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("release", [RELEASES[0], RELEASES[-1]])
def test_one_per_cent_of_a_real_wheel_is_read(
    base_wheel: Callable[[str], WheelBase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    metadata: bool,
) -> None:
    """Of the oldest release and the newest; with what pip reads where no metadata lie beside."""
    whole = base_wheel(release)
    locked = lock.load(QUEUE.directory, Version(release))
    assert locked is not None
    with index.serve() as served:
        served.add(whole.path)
        served.metadata = metadata
        index.use(monkeypatch, served.url, tmp_path)
        made = open_release(Version(release), STACK)
        assert sum(served.parts) < whole.path.stat().st_size / 100
    if metadata:
        # The end of the wheel, its directory, the licence, and each file.
        assert len(served.parts) == 3 + len([digest for digest in locked.stock.values() if digest])
    for path in locked.stock:
        assert made.read(path) == whole.read(path)
    assert made.licence() == whole.licence()


# What a build opens and imports, seen by an audit hook that is there before it.
_WATCHED = """\
import json, sys
opened = []
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened.append(arguments[0])
sys.addaudithook(hook)
from build_hooks import cli
status = cli.main(["build", *sys.argv[1:]])
with open("watched.json", "w") as file:
    json.dump([opened, sorted(sys.modules)], file)
sys.exit(status)
"""


def watched(tree: source.Tree, out: Path, *arguments: str | Path) -> tuple[list[str], list[str]]:
    """Build; return the files that were opened, in order, and the modules that were imported."""
    words = [str(word) for word in arguments]
    process = tree.run(source.PYTHON, "-c", _WATCHED, *words, "--out", str(out))
    assert process.returncode == 0, process.stdout
    opened, modules = json.loads((tree.root / "watched.json").read_text())
    return opened, modules


@pytest.mark.parametrize("named", ["the wheel", "the release"])
def test_a_wheel_on_disk_is_opened_once(tree: source.Tree, tmp_path: Path, named: str) -> None:
    """Its directory is what takes the time: thousands of entries for a dozen files."""
    wheel = tree.wheel()
    arguments = [wheel] if named == "the wheel" else ["0.29.0", "--wheels", tree.wheels]
    opened, modules = watched(tree, tmp_path / "out", *arguments)
    # That of a release is read through once before, for its sha256.
    assert opened.count(str(wheel)) == (1 if named == "the wheel" else 2)
    # What reads from an index is imported by a build that does.
    assert not {"remotezip", "requests", "urllib3"} & set(modules)


def test_of_a_directory_the_files_of_the_lock_are_read_once(
    tree: source.Tree, tmp_path: Path
) -> None:
    files = stand_in.wheel_files(stand_in.sources("0.29.0"), "0.29.0")
    directory = stand_in.write(tmp_path / "unpacked", files)
    opened, _ = watched(tree, tmp_path / "out", directory)
    below = [
        path.removeprefix(f"{directory}/") for path in opened if path.startswith(str(directory))
    ]
    locked = lock.load(tree.root / "overlay", Version("0.29.0"))
    assert locked is not None
    present = [path for path, digest in locked.stock.items() if digest]
    assert sorted(path for path in below if path.startswith("vllm/")) == sorted(present)
    assert {path for path in below if "vllm/" not in path} <= {
        f"vllm-0.29.0.dist-info/{name}" for name in ("METADATA", "RECORD", "licenses/LICENSE")
    } | {""}
