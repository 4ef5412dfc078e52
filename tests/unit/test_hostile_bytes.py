"""Whatever bytes a patch, a wheel or a manifest is made of, no more comes of it than may."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_nemo import _manifest
from vllm_nemo._errors import OverlayError

from build_hooks import base, diff
from build_hooks.errors import BaseError
from tests.support import installed, stand_in

# Diffs: put together from what has a meaning somewhere in one.

NAME = st.lists(
    st.sampled_from(
        ["vllm", "vllm_nemo", "..", ".", "", "/", "\\", "C:", "a", "A.py", "x.py", "\0", "é", "\t"]
    ),
    max_size=5,
).map("/".join)
NUMBER = st.sampled_from(["0", "1", "2", "3", "9", "9999999", "99999999", "-1", "²", ""])
BODY = st.sampled_from([" one", "-one", "+two", " ", "+", "-", "\\ No newline at end of file"])
LINE = st.one_of(
    st.builds("--- {}{}".format, st.sampled_from(["a/", "", "/dev/null"]), NAME),
    st.builds("+++ {}{}".format, st.sampled_from(["b/", "", "/dev/null"]), NAME),
    st.builds("@@ -{},{} +{},{} @@".format, NUMBER, NUMBER, NUMBER, NUMBER),
    BODY,
    st.sampled_from(["diff --git a/x b/x", "new file mode 120000", "rename to vllm/x.py", "\r"]),
)
HEAD = ["--- a/vllm/x.py", "+++ b/vllm/x.py"]
CONTENT = st.lists(st.sampled_from([b"one\n", b"two\n", b"\n", b"\r\n"]), max_size=6).map(b"".join)


@given(st.sampled_from([[], HEAD]), st.lists(LINE, max_size=12), CONTENT)
def test_a_diff_stays_within_vllm_and_fits_or_not(
    head: list[str], lines: list[str], content: bytes
) -> None:
    text = "".join(f"{line}\n" for line in [*head, *lines]).encode()
    with contextlib.suppress(diff.DiffError, diff.MisfitError):
        for file in diff.parse(text):
            parts = PurePosixPath(file.path).parts
            assert parts[0] == "vllm"
            assert all(part.removesuffix(".py").isidentifier() for part in parts)
            made, offsets = diff.apply(file, None if file.added else content)
            assert len(offsets) == len(file.hunks)
            # Whatever applies can be told again, and that brings the same.
            again = diff.make(file.path, None if file.added else content, made)
            (retold,) = diff.parse(again.encode())
            assert diff.apply(retold, None if file.added else content)[0] == made


# Wheels.


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@given(st.data())
def test_a_damaged_wheel_gives_what_was_in_it_or_is_refused(
    scratch: Path, data: st.DataObject
) -> None:
    path = stand_in.write_wheel(scratch, "0.29.0")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        # Most bytes are content; the directory at the end is where the meaning is.
        at = data.draw(
            st.integers(0, len(whole) - 1) | st.integers(len(whole) - 900, len(whole) - 1)
        )
        damaged[at] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.just(len(whole)) | st.integers(0, len(whole)))])
    expected = stand_in.sources("0.29.0")
    with contextlib.suppress(BaseError):
        wheel = base.from_wheel(path)
        with wheel.archive:
            for name, text in expected.items():
                assert wheel.read(name) in (text.encode(), None)
            wheel.licence()


# Manifests.

PART = st.text("abVLM_./\\\0é 1", max_size=6) | st.sampled_from(["vllm", "..", "models", ""])


@given(st.lists(PART, min_size=1, max_size=4).map(".".join), st.booleans(), NAME | st.none())
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
        read = _manifest.read(scratch)
        served = read.served_file(read.modules[name])
        assert ".." not in served.parts
        assert served.is_relative_to(scratch / "_modules")
        served.exists()
