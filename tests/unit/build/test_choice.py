"""What names a base, at every door; whatever names none is refused in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from build_hooks import build, cli
from build_hooks.bases.choice import INSTALLED, named, open_place
from build_hooks.bases.directory import DirectoryBase
from build_hooks.errors import BaseError
from tests.support import hostile, index, stand_in

if TYPE_CHECKING:
    from tests.support.project import Small


def refused(setting: str) -> str:
    with pytest.raises(BaseError) as raised:
        named(setting)
    (line,) = str(raised.value).splitlines()
    return line


# What means something.


@pytest.mark.parametrize("text", ["0.26", "v0.26.0", "0.26.0"])
def test_a_version_is_a_release_whatever_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / text).mkdir()
    assert str(named(text)) == "0.26.0"
    assert named(f"./{text}") == tmp_path / text


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "fork").mkdir()
    for setting in ("fork", "./fork", "~/fork", str(tmp_path / "fork")):
        assert named(setting) == tmp_path / "fork"
    assert named("installed") == INSTALLED


# Every door takes them. No wheel lies there under another name, and none can be fetched.


def test_the_environment_takes_another_spelling(
    project: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRL_VLLM_BASE", " v0.26 ")
    settings = build.Settings.from_environment()
    assert build.identify(project, settings).version == "0.26.0.1"
    made = build.make(project, settings)
    assert (made.identity.version, made.locked) == ("0.26.0.1", True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lock", "v0.26"], "0.26.0: overlay/locks/0.26.0.json\n"),
        (["status", "--against", "v0.26"], "patch  0.26.0\n"),
        (["port", "0.25", "v0.26"], "patch  on 0.26.0\n"),
        (["refresh", "--release", "0.26", "head"], "overlay/patches/head/0.26.0.patch: not needed"),
        (["show", "head", "v0.26"], "--- a/vllm/models.py\n"),
    ],
)
def test_every_command_takes_another_spelling(
    project: Small, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert cli.main(arguments, project) == 0
    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "0.30.0", "newest"],
        ["build", "0.30.0", "0.24.0"],
        ["lock", "0.29.0", "newest"],
        ["lock", "0.29.0", "0.30.0"],
        ["status", "--against", "0.30.0", "--against", "newest"],
        ["port", "0.30.0", "newest"],
        ["port", "newest", "0.30.0"],
        ["refresh", "--release", "newest"],
        ["refresh", "--release", "0.30.0"],
        ["refresh", "nothing", "--release", "0.29.0"],
        ["show", "sqrt", "newest"],
    ],
)
def test_a_word_that_is_wrong_is_told_before_anything_is_fetched(
    project: Small,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "empty")
        assert cli.main(arguments, project) == 1
        assert served.requests == []
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


# What means nothing.


NONE = "is none of: 'installed', a release such as 0.29.0, a wheel file, a directory that contains"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("newest", f"'newest' {NONE} vllm/ (looked for as '/"),
        ("../vllm.whl", NONE),
        ("", "the name of the base is empty"),
        ("two\nlines", r"'two\nlines' " + NONE),
        ("/etc/passwd/vllm", NONE),
        ("~nosuchuser/vllm", "'~nosuchuser/vllm' cannot be looked at: "),
        ("x" * 300, "cannot be looked at: File name too long"),
        ("x/" * 3000, "cannot be looked at: File name too long"),
        ("no\0name", r"'no\x00name' cannot be looked at: "),  # and Python's own words,
        ("0.29.0+cu129", "is no release of the package index; to name a file, write ./0.29.0+cu1"),
    ],
)
def test_what_names_nothing_is_refused(setting: str, message: str) -> None:
    assert message in refused(setting)


def test_a_link_that_goes_round_is_refused(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    assert "/round' " in refused(str(tmp_path / "round"))


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_socket, "/vllm.whl cannot be read: it is no regular file"),
        (os.mkfifo, "/vllm.whl cannot be read: it is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "/dev/zero cannot be read: it is no regular"),
        (lambda path: path.write_bytes(b""), "/vllm.whl is not a whole wheel"),
        (Path.mkdir, "/vllm.whl contains no vllm/__init__.py: name the directory above the pack"),
    ],
    ids=["socket", "pipe", "device", "empty", "directory"],
)
def test_what_is_no_wheel_is_refused(
    project: Small, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], message: str
) -> None:
    # A socket's name may not be long.
    monkeypatch.chdir(project.root)
    make(Path("vllm.whl"))
    with pytest.raises(BaseError) as raised:
        open_place(named("vllm.whl"), project.load())
    (line,) = str(raised.value).splitlines()
    assert message in line


@pytest.fixture
def locked_away(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that holds what its owner may not read."""
    stand_in.write_wheel(tmp_path, "0.29.0")
    stand_in.write(tmp_path / "closed" / "vllm-0.29.0", stand_in.sources("0.29.0"))
    stand_in.write(tmp_path / "half" / "vllm", {"__init__.py": "", "_version.py": ""})
    shut = [tmp_path / name for name in ("closed", "vllm-0.29.0-py3-none-any.whl", "half/vllm")]
    for path in shut:
        path.chmod(0)
    yield tmp_path
    for path in shut:
        path.chmod(0o700)


def test_what_may_not_be_read_is_told_as_such(locked_away: Path) -> None:
    settings = [
        locked_away / name
        for name in (
            "closed/vllm-0.29.0",
            "closed/vllm.whl",
            "closed",
            "half",
            "vllm-0.29.0-py3-none-any.whl",
        )
    ]
    script = "import sys\nfrom build_hooks.cli import main\n"
    script += "print([main(['status', '--against', word]) for word in sys.argv[1:]])"
    command = [*hostile.without_privileges(), sys.executable, "-c", script, *map(str, settings)]
    process = subprocess.run(
        command, cwd=Path(cli.__file__).parent.parent, capture_output=True, text=True, check=True
    )
    assert process.stdout == "[1, 1, 1, 1, 1]\n"
    lines = process.stderr.splitlines()
    assert len(lines) == len(settings)
    for line, setting in zip(lines, settings, strict=True):
        assert line.startswith("error: ")
        assert str(setting) in line
        assert line.endswith(": Permission denied")


# Opening.


def test_a_folder_with_a_releases_name_is_opened_by_its_path(
    project: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    project.directory("0.26.0", "0.29.0")
    queue = project.load()
    assert open_place(named("0.26.0"), queue).version == Version("0.26.0")
    base = open_place(named("./0.26.0"), queue)
    assert isinstance(base, DirectoryBase)
    assert base.version == Version("0.29.0")


def test_nothing_installed_is_told(project: Small) -> None:
    with pytest.raises(BaseError, match="no vLLM is installed here"):
        open_place(INSTALLED, project.load())
