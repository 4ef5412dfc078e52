"""The differences that `vllm-nemo diff` shows can be applied."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from vllm_nemo import OverlayError
from vllm_nemo._overlay import manifest as manifests
from vllm_nemo._overlay import served

from tests.support import installed

if TYPE_CHECKING:
    from pathlib import Path

STOCK = {
    "vllm/__init__.py": "",
    "vllm/plain.py": "one\ntwo\nthree\n",
    "vllm/ends.py": "one\ntwo",
    "vllm/form_feed.py": "one\x0c\ntwo\u2028three\n",
    "vllm/carriage.py": "one\r\ntwo\r\n",
}
SERVED = {
    "vllm/plain.py": "one\n2\nthree\n",
    "vllm/ends.py": "one\ntwo\nthree",
    "vllm/form_feed.py": "one\x0c\ntwo\u2028three\nfour\n",
    "vllm/carriage.py": "one\r\ntwo\r\nthree\r\n",
    "vllm/added.py": "one\ntwo\n",
}


def _install(directory: Path) -> manifests.Manifest:
    _write(directory, STOCK)
    _write(directory / "package" / "_modules", SERVED)
    data = installed.manifest(STOCK, SERVED)
    (directory / "package" / "manifest.json").write_text(json.dumps(data))
    return manifests.read(directory / "package")


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())


def test_git_makes_the_served_files_of_them(tmp_path: Path) -> None:
    manifest = _install(tmp_path)
    found = {m.path: text for m, text in served.diffs(manifest, tmp_path / "vllm", None)}
    assert set(found) == set(SERVED)
    (tmp_path / "all.patch").write_bytes("".join(found.values()).encode())
    work = tmp_path / "work"
    _write(work, STOCK)
    subprocess.run(["git", "init", "-q", work], check=True)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "../all.patch"], cwd=work, check=True)
    for path, text in SERVED.items():
        assert (work / path).read_bytes() == text.encode(), path


def test_one_patch(tmp_path: Path) -> None:
    manifest = _install(tmp_path)
    assert list(served.diffs(manifest, tmp_path / "vllm", "first")) == []
    found = list(served.diffs(manifest, tmp_path / "vllm", "second"))
    assert len(found) == len(SERVED)


@pytest.mark.parametrize("file", ["vllm/plain.py", "package/_modules/vllm/plain.py"])
def test_files_that_are_not_as_built_have_none(tmp_path: Path, file: str) -> None:
    manifest = _install(tmp_path)
    (tmp_path / file).write_text("edited\n")
    with pytest.raises(OverlayError, match="changed"):
        list(served.diffs(manifest, tmp_path / "vllm", None))


def test_states(tmp_path: Path) -> None:
    manifest = _install(tmp_path)
    assert all(state.holds for state in served.module_states(manifest, tmp_path / "vllm"))
    (tmp_path / "vllm/plain.py").unlink()
    (tmp_path / "vllm/added.py").touch()
    (tmp_path / "package/_modules/vllm/ends.py").write_text("edited")
    states = {
        state.module.path: (state.stock, state.served)
        for state in served.module_states(manifest, tmp_path / "vllm")
        if not state.holds
    }
    assert states == {
        "vllm/plain.py": ("missing", "ok"),
        "vllm/added.py": ("unexpected", "ok"),
        "vllm/ends.py": ("ok", "changed"),
    }
    assert {state.stock for state in served.module_states(manifest, None)} == {"absent"}
