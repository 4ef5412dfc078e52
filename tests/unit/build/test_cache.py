"""Fetching from a package index by pip: what goes well, and all that does not."""

from __future__ import annotations

import hashlib
import io
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from build_hooks import fetch
from build_hooks import index as asked
from build_hooks.errors import BaseError
from tests.support import index, stand_in

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
        fetch.wheel(release, known or {})
    assert not list(fetch.cache_directory().iterdir())
    return str(raised.value)


def test_a_wheel_is_fetched_whole_and_once(
    served: index.Index, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fetch.wheel(RELEASE, {NAME: hashlib.sha256(served.wheels[NAME]).hexdigest()})
    assert path == fetch.cache_directory() / NAME
    assert path.read_bytes() == served.wheels[NAME][:]
    assert list(path.parent.iterdir()) == [path]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"vllm 0.29.0 [{'#' * 30}] 3 of 3 MB"
    asked = len(served.requests)
    assert fetch.wheel(RELEASE, {}) == path
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
    bar = asked._Bar("vllm 0.29.0", stream)
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
    bar = asked._Bar("vllm 0.29.0", stream)
    bar.show(0, 2_000_000)
    bar.show(2_000_000, 2_000_000)
    bar.finish()
    dots, marks = "." * 30, "#" * 30
    assert stream.getvalue() == (
        f"\rvllm 0.29.0 [{dots}] 0 of 2 MB\rvllm 0.29.0 [{marks}] 2 of 2 MB\n"
    )


def test_a_directory_of_ones_own_is_used(served: index.Index, tmp_path: Path) -> None:
    assert fetch.wheel(RELEASE, {}, tmp_path / "mine").parent == tmp_path / "mine"
    assert not fetch.cache_directory().exists()


def test_the_cache_lies_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert fetch.cache_directory() == Path("/somewhere/vllm-nemo/wheels")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert fetch.cache_directory() == Path("/home/me/.cache/vllm-nemo/wheels")


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


def test_a_cache_that_cannot_be_written_is_told(
    served: index.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BaseError, match=r"wheels cannot be kept in .*/file/vllm-nemo/wheels \("):
        fetch.wheel(RELEASE, {})


def test_no_pip_is_told(served: index.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = fetch.cache_directory().parent / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    monkeypatch.setattr(asked.sys, "executable", str(bare / "bin" / "python"))
    assert "No module named pip" in refused()
