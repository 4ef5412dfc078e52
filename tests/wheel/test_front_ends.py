"""Every front end gives the same wheel, from the tree and from the sdist, anywhere and anytime."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.support import installed, source, stand_in

NAME = "vllm_nemo-0.29.0.1-py3-none-any.whl"
SDIST = "vllm_nemo-0.29.0.1.tar.gz"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("front_end", [name for name in source.FRONT_ENDS if "sdist" not in name])
def test_every_front_end_gives_the_same_wheel(
    tree: source.Tree, built: Path, tmp_path: Path, front_end: str
) -> None:
    before = tree.snapshot()
    said = tree.build(front_end, tmp_path / "out")
    both = front_end in ("build", "build --no-isolation", "uv build")
    files = {path.name: path for path in (tmp_path / "out").iterdir() if path.name[0] != "."}
    assert set(files) == ({NAME, SDIST} if both else {NAME})
    assert digest(files[NAME]) == digest(built)
    assert tree.snapshot() == before
    if front_end not in ("plain", "pip"):  # pip shows nothing of a build that went well
        assert "head   not-needed\n    Upstream returns a float.\n" in said


@pytest.fixture(scope="module")
def sdist(original: source.Tree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    original.build("build --sdist", out)
    return out / SDIST


@pytest.fixture
def unpacked(original: source.Tree, sdist: Path, tmp_path: Path) -> source.Tree:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    return source.Tree(tmp_path / "unpacked" / SDIST.removesuffix(".tar.gz"), original.wheels)


@pytest.mark.parametrize("front_end", ["plain", "build --wheel", "uv build --wheel"])
def test_the_unpacked_sdist_gives_the_same_wheel(
    unpacked: source.Tree, built: Path, tmp_path: Path, front_end: str
) -> None:
    unpacked.build(front_end, tmp_path / "out")
    assert digest(tmp_path / "out" / NAME) == digest(built)


def test_an_sdist_of_the_sdist_is_the_same(
    unpacked: source.Tree, sdist: Path, tmp_path: Path
) -> None:
    unpacked.build("build --sdist", tmp_path / "out")
    assert digest(tmp_path / "out" / SDIST) == digest(sdist)


def test_the_sdist_needs_no_setting(unpacked: source.Tree, built: Path, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(unpacked.wheels.parent.parent)}
    unpacked.build("plain", tmp_path / "out", base="", env=env)
    assert digest(tmp_path / "out" / NAME) == digest(built)


def test_the_sdist_is_for_one_release(unpacked: source.Tree, tmp_path: Path) -> None:
    said = unpacked.build("plain", tmp_path / "out", base=unpacked.wheel("0.26.0"), succeeds=False)
    assert "This sdist is vllm-nemo 0.29.0.1 for vllm==0.29.0" in said
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_sdist_holds_no_vllm(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert "overlay/patches/sqrt/0.25.0.patch" in names
    assert "overlay/locks/0.29.0.json" in names
    assert not [name for name in names if "_modules" in name or "__pycache__" in name]


@pytest.mark.parametrize("kind", ["release", "directory", "installed"])
def test_every_kind_of_base_gives_the_same_modules(
    original: source.Tree, built: Path, tmp_path: Path, kind: str
) -> None:
    files = stand_in.wheel_files(stand_in.sources("0.29.0"), "0.29.0")
    env = {"XDG_CACHE_HOME": str(original.wheels.parent.parent)}
    if kind == "release":
        base: str | Path = "0.29.0"
    elif kind == "directory":
        base = stand_in.write(tmp_path / "unpacked", files)
    else:
        base = "installed"
        environment = installed.make(tmp_path / "venv")
        stand_in.write(environment.site_packages, files)
        env["VIRTUAL_ENV"] = str(environment.root)
    original.build("plain", tmp_path / "out", base=base, env=env)
    assert digest(tmp_path / "out" / NAME) == digest(built)


@pytest.mark.parametrize("release", stand_in.RELEASES)
def test_every_supported_release(original: source.Tree, tmp_path: Path, release: str) -> None:
    original.build("plain", tmp_path, base=original.wheel(release))
    assert [path.name for path in tmp_path.iterdir()] == [f"vllm_nemo-{release}.1-py3-none-any.whl"]


@pytest.mark.parametrize("front_end", ["plain", "uv build --wheel"])
def test_place_date_and_settings_do_not_show(
    tree: source.Tree, built: Path, tmp_path: Path, front_end: str
) -> None:
    far = tmp_path / "a rather longer path" / "with ümlauts" / "source"
    far.parent.mkdir(parents=True)
    moved = tree.copy(far)
    for number, path in enumerate(sorted(far.rglob("*"))):
        os.utime(path, (10**9 + number, 10**9 + number))
        if path.is_file():
            path.chmod(0o600 if number % 2 else 0o755)
    base = far.parent / tree.wheel().name
    shutil.copyfile(tree.wheel(), base)
    env = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7", "HOSTNAME": "other"}
    moved.build(front_end, tmp_path / "out", base=base, env=env, umask=0o077)
    assert digest(tmp_path / "out" / NAME) == digest(built)
