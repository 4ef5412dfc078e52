"""Reading manifest.json: what is accepted, and what the error says of a damaged one."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
import vllm_nemo
from vllm_nemo import OverlayError
from vllm_nemo._overlay import manifest as manifests

from tests.support import installed

if TYPE_CHECKING:
    from pathlib import Path


def _read(directory: Path, data: object) -> manifests.Manifest:
    (directory / "manifest.json").write_text(json.dumps(data))
    return manifests.read(directory)


def test_all_of_it_is_read(tmp_path: Path) -> None:
    manifest = _read(tmp_path, installed.manifest())
    assert manifest.overlay == installed.OVERLAY_VERSION
    assert manifest.base == manifests.Base("vllm", "0.29.0", "0.29.0", locked=False)
    assert manifest.modules["vllm.engine"] == manifests.Module(
        name="vllm.engine",
        path="vllm/engine/__init__.py",
        package=True,
        stock=installed.sha256(installed.STOCK["vllm/engine/__init__.py"]),
        served=installed.sha256(installed.SERVED["vllm/engine/__init__.py"]),
        patches=("second",),
    )
    assert manifest.queues == (manifests.Queue("nemo", 1, "0" * 64, locked=False, whole=True),)
    assert manifest.modules["vllm.added"].stock is None
    assert [patch.id for patch in manifest.patches] == ["first", "second", "third", "fourth"]
    assert manifest.patches[0] == manifests.Patch(
        id="first",
        queue="nemo",
        title="Models tell where they come from",
        outcome="applied",
        reason="",
        note="",
        variant="0.25.0",
        modules=("vllm.models",),
        switch="always",
        files=("vllm/models.py",),
        offsets={"vllm/models.py": (0, 3)},
        upstream=(manifests.Upstream("pull", "vllm-project/vllm#1", "the same", "0.30.0"),),
    )
    assert manifest.patches[2].variant is None
    assert manifest.served_file(manifest.modules["vllm.models"]) == (
        tmp_path / "_modules" / "vllm" / "models.py"
    )


def test_a_patch_can_be_sent_to_another_process_and_kept_in_a_set(tmp_path: Path) -> None:
    patches = _read(tmp_path, installed.manifest()).patches
    assert pickle.loads(pickle.dumps(patches)) == patches  # noqa: S301
    assert len({*patches, *patches}) == len(patches)


def test_later_fields_do_no_harm(tmp_path: Path) -> None:
    data = installed.manifest()
    data["built-by"] = data["modules"]["vllm.models"]["size"] = data["patches"][0]["risk"] = "x"
    assert _read(tmp_path, data).overlay == installed.OVERLAY_VERSION


def _set(data: Any, path: str, value: object) -> None:
    *parents, last = path.split("/")
    for key in parents:
        data = data[int(key) if key.isdigit() else key]
    if value is KeyError:
        del data[last]
    else:
        data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", 2, "format: is 2, this version reads 3"),
        ("queues", 1, "queues: is of type int, not a list"),
        ("queues/0/revision", "1", "queues[0].revision: is of type str, not a number"),
        ("queues/0/whole", 1, "queues[0].whole: is of type int, not true or false"),
        ("format", KeyError, "format: is None, this version reads 3"),
        ("overlay", KeyError, "overlay: is missing"),
        ("base", [], "base: is of type list, not an object"),
        ("base/version", 29, "base.version: is of type int, not a string"),
        ("base/locked", "yes", "base.locked: is of type str, not true or false"),
        ("modules", None, "modules: is of type NoneType, not an object"),
        ("modules/vllm.models/served", "abc", "modules.vllm.models.served: is 'abc', not a sha256"),
        ("modules/vllm.models/served", None, "modules.vllm.models.served: is of type NoneType"),
        ("modules/vllm.models/stock", KeyError, "modules.vllm.models.stock: is missing"),
        ("modules/vllm.models/package", True, "modules.vllm.models.path: is 'vllm/models.py'"),
        ("modules/vllm.models/path", "../models.py", "modules.vllm.models.path: is '../models.py'"),
        ("modules/vllm.models/path", "/vllm/models.py", "modules.vllm.models.path"),
        ("modules/vllm.models/patches", "first", "modules.vllm.models.patches: is of type str"),
        ("modules/vllm.models/patches", ["no"], "modules.vllm.models.patches: no patch 'no'"),
        ("files", KeyError, "files: is missing"),
        ("files", {"vllm_nemo/a.py": "abc"}, "files.vllm_nemo/a.py: is 'abc', not a sha256"),
        ("files", {"../a.py": "0" * 64}, "files: '../a.py' is no path of the overlay's own"),
        ("files", {"/a.py": "0" * 64}, "files: '/a.py' is no path"),
        ("files", {"vllm/a.py": "0" * 64}, "files: 'vllm/a.py' is no path"),
        ("files", {"vllm_nemo\\a.py": "0" * 64}, "files: 'vllm_nemo\\\\a.py' is no path"),
        ("patches", {}, "patches: is of type dict, not a list"),
        ("patches/1/id", KeyError, "patches[1].id: is missing"),
        ("patches/1/outcome", "skipped", "patches[1].outcome: is 'skipped', not one of applied"),
        ("patches/0/offsets", {"vllm/models.py": ["1"]}, "patches[0].offsets.vllm/models.py"),
        ("patches/0/files", [1], "patches[0].files[0]: is of type int, not a string"),
        ("patches/0/upstream", [{}], "patches[0].upstream[0].kind: is missing"),
    ],
)
def test_a_damaged_one_is_refused_with_the_field(
    tmp_path: Path, path: str, value: object, message: str
) -> None:
    data = copy.deepcopy(installed.manifest())
    _set(data, path, value)
    with pytest.raises(OverlayError) as caught:
        _read(tmp_path, data)
    assert f"{tmp_path / 'manifest.json'} cannot be used: {message}" in str(caught.value)
    assert "pip install --force-reinstall --no-deps vllm-nemo" in str(caught.value)


def test_a_module_outside_vllm_is_refused(tmp_path: Path) -> None:
    data = installed.manifest()
    module = data["modules"].pop("vllm.models")
    data["modules"]["torch.models"] = {**module, "path": "torch/models.py"}
    with pytest.raises(OverlayError, match=r"modules\.torch\.models"):
        _read(tmp_path, data)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", '{"format": 1'])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(OverlayError, match="cannot be used"):
        manifests.read(tmp_path)


def test_a_source_tree_has_none(tmp_path: Path) -> None:
    (tmp_path / "series.toml").touch()
    with pytest.raises(OverlayError, match="source tree, not a built wheel"):
        manifests.read(tmp_path / "vllm_nemo")


def test_an_installation_that_lost_it_is_no_source_tree(tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match="Install the wheel again") as raised:
        manifests.read(tmp_path / "vllm_nemo")
    assert "source tree" not in str(raised.value)


@pytest.mark.parametrize(("where", "name"), [(sys, "frozen"), (vllm_nemo, "__compiled__")])
def test_a_program_frozen_without_data_files_is_no_source_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    monkeypatch.setattr(where, name, True, raising=False)
    with pytest.raises(OverlayError, match="frozen without the overlay's files") as raised:
        manifests.read(tmp_path / "vllm_nemo")
    assert "source tree" not in str(raised.value)
