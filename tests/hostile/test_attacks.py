"""Bases and patches made to do harm: nothing of them is run, nothing is written but the wheel."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support import hostile, source, stand_in

RELEASE = "0.29.0"
# A directory at the end of long ways up.
UP = "../" * 40


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> source.Tree:
    return source.make(tmp_path_factory.mktemp("original"))


@pytest.fixture
def tree(original: source.Tree, tmp_path: Path) -> source.Tree:
    return original.copy(tmp_path / "tree")


class Build:
    """One build in directories of its own, all of which are looked at afterwards."""

    def __init__(self, tree: source.Tree, scratch: Path) -> None:
        self.tree = tree
        # Everything that the build may see or write, and a place that nobody names.
        self.world = scratch / "world"
        self.out = scratch / "out"
        for name in ("temporary", "home", "cache", "victim"):
            (self.world / name).mkdir(parents=True)
        (self.world / "victim" / "file.py").write_text("untouched = True\n")

    def run(self, base: Path) -> subprocess.CompletedProcess[str]:
        """Build by the command that lists what it does; memory and time have a limit."""
        limits = ["prlimit", "--as=2000000000", "--cpu=60"]
        env = {
            "TMPDIR": str(self.world / "temporary"),
            "HOME": str(self.world / "home"),
            "XDG_CACHE_HOME": str(self.world / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        before = hostile.contents(self.world), self.tree.snapshot(), hostile.contents(base.parent)
        command = [word.format(out=self.out) for word in source.FRONT_ENDS["python -m build_hooks"]]
        process = self.tree.run(*limits, *command, base=base, env=env)
        after = hostile.contents(self.world), self.tree.snapshot(), hostile.contents(base.parent)
        assert after == before
        return process

    def succeeds(self, base: Path) -> zipfile.ZipFile:
        process = self.run(base)
        assert process.returncode == 0, process.stdout
        (wheel,) = self.out.iterdir()
        return zipfile.ZipFile(wheel)

    def fails(self, base: Path) -> str:
        """Build what must be refused, in words, and leave no wheel."""
        process = self.run(base)
        assert process.returncode != 0
        assert "Traceback" not in process.stdout
        assert not self.out.exists() or not list(self.out.iterdir())
        return process.stdout


@pytest.fixture
def build(tree: source.Tree, tmp_path: Path) -> Build:
    return Build(tree, tmp_path)


def archive(path: Path, members: Mapping[str, bytes | str], **more: zipfile.ZipInfo) -> Path:
    """Write a wheel of the stand-in with some members replaced and added."""
    path.mkdir(parents=True, exist_ok=True)
    path /= f"vllm-{RELEASE}-py3-none-any.whl"
    files = stand_in.wheel_files(stand_in.sources(RELEASE), RELEASE)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in {**files, **members}.items():
            wheel.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


# Nothing of a base is run.

RAN = "import os, pathlib; pathlib.Path({!r}).write_text('ran')\n"


def _traps(mark: Path) -> dict[str, str]:
    """Return code in every place where some tool or interpreter would run it."""
    code = RAN.format(str(mark))
    sources = {
        name: f"{text}\n{code}" if name.endswith(".py") else text
        for name, text in stand_in.sources(RELEASE).items()
    }
    # What vLLM's version is read from tells it in plain words, too.
    info = f"vllm-{RELEASE}.dist-info"
    return {
        **sources,
        **dict.fromkeys(
            (
                *("setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py"),
                *("hatch_build.py", "_virtualenv.py", "pip/__init__.py", "pip/__main__.py"),
                *("packaging/__init__.py", "hatchling/__init__.py", "unidiff/__init__.py"),
                *("tomllib.py", "zipfile.py", "build_hooks/__init__.py", "vllm/json.py"),
                *("trap/__init__.py", "encodings/trap.py"),
            ),
            code,
        ),
        "a.pth": code.replace("\n", ";"),
        "z.pth": "import trap\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbackend-path = ["."]\n'
        'build-backend = "setup"\n',
        f"{info}/entry_points.txt": "[hatch]\ntrap = trap\n[distutils.commands]\nx = trap:x\n"
        "[console_scripts]\nx = trap:x\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {RELEASE}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": stand_in.record(sources),
    }


@pytest.mark.parametrize("kind", ["directory", "wheel", "checkout"])
def test_nothing_of_a_base_is_run(build: Build, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "ran"
    files = _traps(mark)
    if kind == "wheel":
        path = tmp_path / "wheels" / f"vllm-{RELEASE}+trap-py3-none-any.whl"
        path.parent.mkdir()
        info = f"vllm-{RELEASE}.dist-info/METADATA"
        files[info] = files[info].replace(RELEASE, f"{RELEASE}+trap")
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
    else:
        if kind == "checkout":
            files = {n: text for n, text in files.items() if ".dist-info" not in n}
        path = stand_in.write(tmp_path / "base" / "directory", files)
    with build.succeeds(path) as built:
        served = built.read("vllm_nemo/_modules/vllm/models.py").decode()
    assert RAN.format(str(mark)) in served
    assert not mark.exists()
    # It would have run, had somebody imported it.
    hostile.prints([source.PYTHON, "-c", served])
    assert mark.exists()


# Wheels.


def _bomb(directory: Path, name: str, claimed: int) -> Path:
    """Write a wheel with a member that inflates to 8 GiB, whatever it claims to hold."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(b"\0" * (1 << 24)) + compressor.flush(zlib.Z_FULL_FLUSH)
    data = block * 512 + compressor.flush()
    path = archive(directory, {})
    with zipfile.ZipFile(path) as wheel:
        kept = {n: wheel.read(n) for n in wheel.namelist() if n != name}
    with zipfile.ZipFile(path, "w") as wheel:
        for other, content in kept.items():
            wheel.writestr(other, content)
        # Stored as it is, and then called deflated in both headers.
        wheel.writestr(zipfile.ZipInfo(name), data)
        info = wheel.getinfo(name)
        at = info.header_offset
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, claimed
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, at + 8, zipfile.ZIP_DEFLATED)
    path.write_bytes(raw)
    return path


def _link(directory: Path) -> Path:
    path = archive(directory, {"vllm/other.py": ""})
    info = zipfile.ZipInfo("vllm/engine/__init__.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path) as wheel:
        kept = {name: wheel.read(name) for name in wheel.namelist() if name != info.filename}
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in kept.items():
            wheel.writestr(name, content)
        wheel.writestr(info, f"{UP}etc/passwd")
    return path


def _twice(directory: Path) -> Path:
    path = archive(directory, {})
    with zipfile.ZipFile(path, "a") as wheel, pytest.warns(UserWarning, match="Duplicate"):
        wheel.writestr("vllm/models.py", "import os\n")
    return path


def _compressed(directory: Path) -> Path:
    path = archive(directory, {})
    with zipfile.ZipFile(path) as wheel:
        kept = {name: wheel.read(name) for name in wheel.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as wheel:
        for name, content in kept.items():
            wheel.writestr(name, content)
    return path


WHEELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a bomb": (lambda d: _bomb(d, "vllm/models.py", 400), "vllm/models.py is damaged"),
    "a bomb of metadata": (
        lambda d: _bomb(d, f"vllm-{RELEASE}.dist-info/METADATA", 400), "METADATA is damaged"
    ),
    "an absurd size": (lambda d: _bomb(d, "vllm/models.py", 1 << 40), "claims 1099511627776 bytes"),
    "a link": (_link, "differs from that release in files"),
    "a name twice": (_twice, "'vllm/models.py'"),
    "another compression": (_compressed, "compressed in a way that wheels are not"),
}  # fmt: skip


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_that_is_refused(build: Build, tmp_path: Path, name: str) -> None:
    make, message = WHEELS[name]
    assert message in build.fails(make(tmp_path / "wheels"))


def test_members_that_lead_away_are_not_unpacked(build: Build, tmp_path: Path) -> None:
    """A wheel is read from, file by file; nothing else of it is looked at."""
    victim = build.world / "victim" / "file.py"
    names = [
        str(victim),
        f"{UP}{victim}",
        f"vllm/{UP}{victim}",
        "vllm/../../victim/file.py",
        "..\\victim\\file.py",
        "C:\\victim\\file.py",
        "VLLM/models.py",
        "vllm/Models.py",
        "vllm/models.PY",
        "vllm/" + "d/" * 2000 + "deep.py",
        "vllm_nemo/__init__.py",
        "vllm_nemo.pth",
    ]
    base = archive(tmp_path / "wheels", dict.fromkeys(names, "evil = True\n"))
    with build.succeeds(base) as built:
        assert not [name for name in built.namelist() if b"evil" in built.read(name)]
        assert not [name for name in built.namelist() if name.startswith(("/", "..", "vllm/"))]


# Directories.


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _linked(path: Path, to: str) -> None:
    path.unlink()
    path.symlink_to(to)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 20)


MODELS, VERSION = "vllm/models.py", "vllm/_version.py"
DIRECTORIES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an endless device": (MODELS, lambda p: _linked(p, "/dev/zero"), "it is no regular file"),
    "a pipe": (MODELS, _fifo, "it is no regular file"),
    "a link to itself": (MODELS, lambda p: _linked(p, p.name), "symbolic links"),
    "a link to nothing": (MODELS, lambda p: _linked(p, "/nowhere"), "the base has no such file"),
    "a link to another file": (MODELS, lambda p: _linked(p, "/etc/passwd"), "not found"),
    "a huge file": (MODELS, _large, "20971520 bytes; 16777216 at most"),
    "NULs": (MODELS, lambda p: p.write_bytes(p.read_bytes() + b"\0\n"), "does not compile"),
    "deep nesting": (
        MODELS, lambda p: p.write_bytes(p.read_bytes() + b"(" * 10**6), "does not compile"
    ),
    "an endless version": (VERSION, lambda p: _linked(p, "/dev/zero"), "does not tell its version"),
    "a version that is a pipe": (VERSION, _fifo, "does not tell its version"),
    "a deep version": (
        VERSION, lambda p: p.write_text("version = " + "-" * 200_000 + "1\n"), "tell its version"
    ),
    "endless metadata": ("PKG-INFO", lambda p: p.symlink_to("/dev/zero"), "it is no regular file"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_that_is_refused(build: Build, tmp_path: Path, name: str) -> None:
    path, spoil, message = DIRECTORIES[name]
    base = stand_in.write(tmp_path / "base" / "vllm", stand_in.sources(RELEASE))
    spoil(base / path)
    assert message in build.fails(base)


@pytest.mark.parametrize("name", ["RECORD", "METADATA"])
def test_an_installed_base_with_damaged_records(build: Build, tmp_path: Path, name: str) -> None:
    files = stand_in.wheel_files(stand_in.sources(RELEASE), RELEASE)
    info = f"vllm-{RELEASE}.dist-info"
    base = stand_in.write(tmp_path / "base" / "site", {**files, f"{info}/{name}": b"\xff\xfe"})
    assert f"{info}/{name} is damaged" in build.fails(base)
    _linked(base / info / name, "/dev/zero")
    assert f"{info}/{name} cannot be read: it is no regular file" in build.fails(base)


def test_an_editable_base_that_leads_to_a_device(build: Build, tmp_path: Path) -> None:
    """What an installer has written of itself is not read without end either."""
    info = "acme-1.dist-info"
    files = {**stand_in.sources(RELEASE), f"{info}/METADATA": "", f"{info}/RECORD": ""}
    base = stand_in.write(tmp_path / "base" / "site", files)
    (base / info / "direct_url.json").symlink_to("/dev/zero")
    build.succeeds(base).close()
