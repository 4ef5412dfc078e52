"""Fetching from a package index by pip: what goes well, and all that does not."""

from __future__ import annotations

import hashlib
import io
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks import build, cli
from build_hooks.bases.cache import cache_directory, fetch_wheel
from build_hooks.bases.index import pip
from build_hooks.errors import BaseError
from tests.support import hostile, index, stand_in

if TYPE_CHECKING:
    from tests.support.project import Small

RELEASE = Version("0.29.0")
NAME = "vllm-0.29.0-py3-none-any.whl"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[index.Index]:
    """Give an index that has one large wheel, and pip set up to ask it."""
    files = {**stand_in.sources("0.29.0"), "vllm/large.so": "\0" * 3_000_000}
    with index.serve() as served:
        served.add(stand_in.write_wheel(tmp_path, "0.29.0", files=files))
        index.use(monkeypatch, served.url, tmp_path / "cache")
        yield served


def refused(known: dict[str, str] | None = None, release: Version = RELEASE) -> str:
    """Fetch in vain, and see that nothing is left in the cache."""
    with pytest.raises(BaseError) as raised:
        fetch_wheel(release, known or {})
    assert not list(cache_directory().iterdir())
    return str(raised.value)


def test_a_wheel_is_fetched_whole_and_once(
    served: index.Index, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fetch_wheel(RELEASE, {NAME: hashlib.sha256(served.wheels[NAME]).hexdigest()})
    assert path == cache_directory() / NAME
    assert path.read_bytes() == served.wheels[NAME][:]
    assert list(path.parent.iterdir()) == [path]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"vllm 0.29.0 [{'#' * 30}] 3 of 3 MB"
    asked = len(served.requests)
    assert fetch_wheel(RELEASE, {}) == path
    assert len(served.requests) == asked
    assert capfd.readouterr().err == ""


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_progress_is_a_line_every_tenth_where_there_is_no_terminal() -> None:
    stream = Stream(terminal=False)
    bar = pip._Bar("vllm 0.29.0", stream)
    for done in range(0, 201_000_000, 1_000_000):
        bar.show(done, 200_000_000)
    bar.show(1, 0)
    bar.finish()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == f"vllm 0.29.0 [{'.' * 30}] 0 of 200 MB"
    assert lines[5] == f"vllm 0.29.0 [{'#' * 15}{'.' * 15}] 100 of 200 MB"


def test_progress_is_drawn_in_place_on_a_terminal() -> None:
    stream = Stream(terminal=True)
    bar = pip._Bar("vllm 0.29.0", stream)
    bar.show(0, 2_000_000)
    bar.show(2_000_000, 2_000_000)
    bar.finish()
    dots, marks = "." * 30, "#" * 30
    assert stream.getvalue() == (
        f"\rvllm 0.29.0 [{dots}] 0 of 2 MB\rvllm 0.29.0 [{marks}] 2 of 2 MB\n"
    )


def test_a_directory_of_ones_own_is_used(served: index.Index, tmp_path: Path) -> None:
    assert fetch_wheel(RELEASE, {}, tmp_path / "mine").parent == tmp_path / "mine"
    assert not cache_directory().exists()


def test_the_cache_lies_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/vllm-nemo/wheels")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_directory() == Path("/home/me/.cache/vllm-nemo/wheels")


def test_an_unknown_release_is_told(served: index.Index) -> None:
    message = refused(release=Version("0.30.0"))
    assert message.startswith("vLLM 0.30.0 could not be fetched by pip:\n")
    assert "No matching distribution found for vllm==0.30.0" in message
    assert "(from versions: 0.29.0)" in message
    assert message.endswith("or name a wheel file or a directory in NRL_VLLM_BASE.")


def test_no_network_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    index.use(monkeypatch, url, tmp_path)
    monkeypatch.setenv("PIP_RETRIES", "1")
    message = refused()
    assert message.startswith("vLLM 0.29.0 could not be fetched by pip:\n")
    assert "Connection refused" in message
    assert "No version at all was found: the index may be out of reach." in message
    assert "Check the release and the network" in message


@pytest.mark.parametrize("hashes", [True, False])
def test_a_truncated_download_is_told(served: index.Index, hashes: bool) -> None:
    served.hashes = hashes
    served.truncate = 10_000
    message = refused()
    assert message.startswith("vLLM 0.29.0 could not be fetched by pip:\n")
    assert "Check the release and the network" in message


def test_another_file_than_the_locked_one_is_refused(served: index.Index) -> None:
    message = refused({NAME: "0" * 64})
    found = hashlib.sha256(served.wheels[NAME]).hexdigest()
    assert f"{NAME} has sha256 {found}, but the lock says {'0' * 64}" in message
    assert "Do not use it" in message


def test_a_damaged_index_is_told(served: index.Index) -> None:
    page = served.page()
    served.wheels[NAME] = b"not a wheel"
    served.page = lambda: page  # type: ignore[method-assign]
    message = refused()
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in message


def test_no_pip_is_told(served: index.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = cache_directory().parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    assert "No module named pip" in refused()


# A wheel in the cache is the one that was locked.


def changed(wheel: Path) -> str:
    """Change a kept wheel so that it still is one; return what is said of it."""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("vllm/data.txt", "more")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{wheel.name} has sha256 {digest}, but the lock says "


def test_a_build_refuses_a_kept_wheel_that_was_changed(project: Small) -> None:
    wheel = project.wheel("0.26.0")
    said = changed(wheel)
    with pytest.raises(BaseError) as raised:
        build.make(project, build.Settings("0.26.0"))
    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith(f": delete {wheel} and run this again.")
    wheel.write_bytes(b"")
    with pytest.raises(BaseError, match="has sha256"):
        build.make(project, build.Settings("0.26.0"))


@pytest.mark.parametrize(
    "command",
    [
        ["build", "0.26.0", "--wheels", "wheels"],
        ["lock", "0.26.0", "--wheels", "wheels"],
        ["lock", "0.26.0"],
        ["status", "--against", "0.26.0"],
        ["port", "0.25.0", "0.26.0"],
        ["refresh", "--release", "0.26.0"],
    ],
)
def test_a_command_refuses_a_kept_wheel_that_was_changed(
    project: Small,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    monkeypatch.chdir(project.root)
    before = project.lock_file("0.26.0").read_bytes()
    said = changed(project.wheel("0.26.0"))
    if "--wheels" in command:
        project.wheels.rename(project.root / "wheels")
    assert cli.main(command, project) == 1
    assert said in capsys.readouterr().err
    assert project.lock_file("0.26.0").read_bytes() == before


# What the system refuses is told as what it is. The first release is locked, the second is not.

RELEASES = ["0.26.0", "0.27.0"]
_MAKE = """\
import sys
from pathlib import Path
from build_hooks import build
from build_hooks.errors import BuildError
from build_hooks.project import Project
try:
    build.make(Project(Path(sys.argv[1])), build.Settings(sys.argv[2]))
except BuildError as error:
    sys.exit(f"error: {error}")
"""


@pytest.fixture
def cache(project: Small, served: index.Index, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the directory of an empty cache, and an index with both releases."""
    for release in RELEASES:
        files = {**stand_in.sources("0.26.0"), "vllm/large.so": bytes(300_000)}
        served.add(stand_in.write_wheel(project.root / "made", release, files=files))
    name = "vllm-0.26.0-py3-none-any.whl"
    project.edit_lock("0.26.0", wheels={name: hashlib.sha256(served.wheels[name]).hexdigest()})
    served.metadata = True
    cache = project.root / "small"
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache


def fails(project: Small, release: str, *before: str) -> str:
    """Build in a process of its own, in vain; return the one line that says why."""
    command = [*before, sys.executable, "-c", _MAKE, str(project.root), release]
    process = subprocess.run(
        command, cwd=Path(cli.__file__).parent.parent, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1, process.stderr
    # pip's progress is told as well.
    errors = [line for line in process.stderr.splitlines() if not line.startswith("vllm 0")]
    assert len(errors) == 1, process.stderr
    return errors[0].removeprefix("error: ")


def told(project: Small, release: str, *before: str) -> str:
    """Return where a build in vain was refused something, and why."""
    said = fails(project, release, *before)
    start = f"vLLM {release} cannot be read from the cache, or kept in it: "
    assert said.startswith(start)
    return said.removeprefix(start)


ELSEWHERE = "; set XDG_CACHE_HOME to a directory that you can write to"


@pytest.mark.parametrize("release", RELEASES)
def test_a_cache_that_may_not_be_written_is_told(project: Small, cache: Path, release: str) -> None:
    cache.chmod(0o555)
    said = told(project, release, *hostile.without_privileges())
    assert said == f"{cache}/vllm-nemo: Permission denied{ELSEWHERE}"
    before = hostile.mounts(f"mount --bind {cache} {cache}\nmount -o remount,bind,ro {cache}")
    assert told(project, release, *before) == f"{cache}/vllm-nemo: Read-only file system{ELSEWHERE}"


@pytest.mark.parametrize("release", RELEASES)
def test_a_full_disk_is_told(project: Small, cache: Path, release: str) -> None:
    (cache / "vllm-nemo").mkdir()
    before = hostile.mounts(f"mount -t tmpfs -o size=8k none {cache}")
    where, reason = told(project, release, *before).split(": ", 1)
    assert Path(where).is_relative_to(cache)
    assert reason == "No space left on device; free some space there"


def test_a_file_that_may_not_be_as_large_is_told(project: Small, cache: Path) -> None:
    where, reason = told(project, "0.27.0", "prlimit", "--fsize=100000").split(": ", 1)
    assert Path(where).is_relative_to(cache)
    assert reason == "File too large"


@pytest.mark.parametrize("release", RELEASES)
def test_a_file_in_place_of_the_cache_is_told(project: Small, cache: Path, release: str) -> None:
    stand_in.write(cache, {"vllm-nemo": ""})
    said = told(project, release)
    assert said.startswith(f"{cache}/vllm-nemo/")
    assert said.endswith(": Not a directory")


@pytest.mark.parametrize("release", RELEASES)
def test_a_kept_wheel_that_may_not_be_read_is_told(
    project: Small, cache: Path, release: str
) -> None:
    wheel = stand_in.write_wheel(cache / "vllm-nemo" / "wheels", release)
    wheel.chmod(0)
    said = fails(project, release, *hostile.without_privileges())
    assert str(wheel) in said
    assert "Permission denied" in said


def test_a_kept_file_that_may_not_be_read_is_told(project: Small, cache: Path) -> None:
    build.make(project, build.Settings("0.26.0"))
    for file in (cache / "vllm-nemo" / "files").iterdir():
        file.chmod(0)
    said = told(project, "0.26.0", *hostile.without_privileges())
    assert re.fullmatch(
        f"{cache}/vllm-nemo/files/[0-9a-f]{{64}}: Permission denied{ELSEWHERE}", said
    )


def test_a_cache_with_too_long_a_name_is_told(
    project: Small, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / ("x" * 300)))
    for release in RELEASES:
        assert told(project, release).endswith(": File name too long")


def test_no_home_is_told(project: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert fails(project, "0.26.0", *hostile.nobody(54321)) == (
        "there is no home directory for the cache; set XDG_CACHE_HOME to a directory that you can "
        "write to"
    )


def test_a_directory_of_ones_own_that_may_not_be_written_is_told(
    served: index.Index, tmp_path: Path
) -> None:
    stand_in.write(tmp_path, {"file": ""})
    with pytest.raises(BaseError) as raised:
        fetch_wheel(RELEASE, {}, tmp_path / "file" / "mine")
    assert str(raised.value).endswith(f": {tmp_path}/file/mine: Not a directory")
