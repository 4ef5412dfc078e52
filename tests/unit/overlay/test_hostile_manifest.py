"""Whatever names a manifest has, nothing is served but what lies in its own directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_nemo._overlay import manifest as manifests
from vllm_nemo._overlay.errors import OverlayError

from tests.support import installed

PART = st.text("abVLM_./\\\0é 1", max_size=6) | st.sampled_from(["vllm", "..", "models", ""])
PATH = st.lists(
    st.sampled_from(["vllm", "..", ".", "", "/", "\\", "C:", "a", "A.py", "x.py", "\0", "é"]),
    max_size=5,
).map("/".join)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@given(st.lists(PART, min_size=1, max_size=4).map(".".join), st.booleans(), PATH | st.none())
def test_a_manifest_serves_from_its_own_directory(
    scratch: Path, name: str, package: bool, path: str | None
) -> None:
    manifest = installed.manifest()
    entry = manifest["modules"].pop("vllm.models")
    # The path that belongs to the name, or any.
    own = name.replace(".", "/") + ("/__init__.py" if package else ".py")
    manifest["modules"][name] = {**entry, "package": package, "path": path or own}
    (scratch / "manifest.json").write_text(json.dumps(manifest))
    with contextlib.suppress(OverlayError):
        read = manifests.read(scratch)
        served = read.served_file(read.modules[name])
        assert ".." not in served.parts
        assert served.is_relative_to(scratch / "_modules")
        served.exists()
