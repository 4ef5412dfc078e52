"""Locks: what is recorded, and that each kind of difference is named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks import build
from build_hooks.errors import BaseError, LockError
from build_hooks.files import sha256
from build_hooks.outputs.record import record, verify, write
from build_hooks.queues.lock import FIELDS, FORMAT, Lock, load
from build_hooks.upkeep import status
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay

RELEASE = Version("0.29.0")


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path, made: Overlay) -> None:
    assert load(tmp_path, RELEASE) is None
    file = write(tmp_path, made, {"b.whl": "2", "a.whl": "1"})
    assert file == tmp_path / "locks" / "0.29.0.json"
    loaded = load(tmp_path, RELEASE)
    assert loaded is not None
    assert (loaded.release, loaded.wheels) == ("0.29.0", {"a.whl": "1", "b.whl": "2"})
    assert list(loaded.wheels) == ["a.whl", "b.whl"]
    licence = made.base.licence()
    assert licence
    assert loaded.licence == sha256(licence)
    assert loaded.content == record(made)
    verify(loaded, made)
    written = file.read_bytes()
    assert write(tmp_path, made, {"a.whl": "1", "b.whl": "2"}).read_bytes() == written


def test_a_lock_tells_what_was_read_and_made(made: Overlay) -> None:
    recorded = record(made)
    stock = {p: t.encode() for p, t in stand_in.sources("0.29.0").items()}
    assert recorded["stock"] == {
        "vllm/engine/__init__.py": sha256(stock["vllm/engine/__init__.py"]),
        "vllm/models.py": sha256(stock["vllm/models.py"]),
        "vllm/scaling.py": None,
    }
    assert list(recorded["patches"]) == ["sqrt", "scale", "head"]
    assert recorded["patches"]["head"] == {
        "outcome": "not-needed",
        "reason": "Upstream returns a float.",
    }
    models = stand_in.PATCHES["scale"]["0.29.0"]
    scaling = stand_in.PATCHES["scale"]["0.25.0"].partition("--- a/vllm/models.py\n")[0]
    assert recorded["patches"]["scale"] == {
        "outcome": "applied",
        # Of the whole diff: each file's from its variant, in the order of their paths.
        "sha256": sha256((models + scaling).encode()),
        "files": {
            "vllm/models.py": {"variant": "0.29.0", "offsets": [0]},
            "vllm/scaling.py": {"variant": "0.25.0", "offsets": [0]},
        },
        "note": "Read the new comment.",
    }
    assert recorded["served"] == {m.path: sha256(m.served) for m in made.modules}


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in path[:-1]:
            content = content[key]
        if to is None:
            del content[path[-1]]
        else:
            content[path[-1]] = to

    return change


def _reorder(content: dict[str, Any]) -> None:
    content["patches"] = dict(reversed(content["patches"].items()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("stock", "vllm/models.py", to="0" * 64), "stock: vllm/models.py: "),
        (_set("stock", "vllm/models.py", to=None), "stock: vllm/models.py: in this build, but not"),
        (_set("stock", "vllm/old.py", to="0"), "stock: vllm/old.py: locked, but not in this build"),
        (_set("stock", "vllm/scaling.py", to="0"), 'vllm/scaling.py: null, but locked is "0"'),
        (_set("served", "vllm/models.py", to="0"), "served: vllm/models.py: "),
        (_set("patches", "scale", to=None), "patches: scale: in this build, but not locked"),
        (
            _set("patches", "gone", to={"outcome": ""}),
            "patches: gone: locked, but not in this build",
        ),
        (_set("patches", "scale", "outcome", to="present"), "patches: scale: outcome: "),
        (
            _set("patches", "scale", "files", "vllm/models.py", "variant", to="0.25.0"),
            'patches: scale: files: vllm/models.py: variant: "0.29.0", but locked is "0.25.0"',
        ),
        (_set("patches", "scale", "sha256", to="0"), "patches: scale: sha256: "),
        (_set("patches", "scale", "note", to=None), "patches: scale: note: in this build"),
        (_set("patches", "head", "reason", to="x"), "patches: head: reason: "),
        (
            _set("patches", "sqrt", "files", "vllm/models.py", "offsets", to=[3]),
            "patches: sqrt: files: vllm/models.py: offsets: [4], but locked is [3]",
        ),
        (_reorder, "patches: the order is sqrt, scale, head, but locked is head, scale, sqrt"),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path,
    made: Overlay,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    file = write(tmp_path, made, {})
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    loaded = load(tmp_path, RELEASE)
    assert loaded is not None
    with pytest.raises(LockError) as raised:
        verify(loaded, made)
    text = str(raised.value)
    assert text.startswith("The build of vLLM 0.29.0 does not reproduce its lock:\n")
    assert message in text
    assert text.endswith("on purpose, run: python -m build_hooks lock 0.29.0")
    assert len(text.splitlines()) == 3


def test_all_differences_are_told_at_once(tmp_path: Path, made: Overlay) -> None:
    content = {**record(made), "stock": {}, "served": {}}
    with pytest.raises(LockError) as raised:
        verify(Lock("0.29.0", {}, None, content), made)
    assert str(raised.value).count("in this build, but not locked") == 2 * len(made.modules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        (b"\xff", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a lock of format 3"),
        ("{}", "is not a lock of format 3"),
        ({"format": 2}, "is not a lock of format 3"),
        ({"extra": 1}, "is not a lock of format 3"),
        ({"release": "0.28.0"}, "is the lock of 0.28.0"),
        ({"wheels": []}, "'wheels' is damaged"),
        ({"wheels": {"a.whl": None}}, "'wheels' is damaged"),
        ({"stock": {"vllm/models.py": 1}}, "'stock' is damaged"),
        ({"patches": {"one": "applied"}}, "'patches' is damaged"),
        ({"patches": {"one": {}}}, "'patches' is damaged"),
        ({"patches": {"one": {"outcome": "applied", "note": 1}}}, "'patches' is damaged"),
        ({"served": None}, "'served' is damaged"),
        ({"licence": 1}, "'licence' is damaged"),
    ],
)
def test_a_malformed_lock_is_refused(
    tmp_path: Path, text: str | bytes | dict[str, Any], message: str
) -> None:
    if isinstance(text, dict):
        empty = {field: {} for field in FIELDS} | {"licence": None, "below": None}
        text = json.dumps({**empty, "format": FORMAT, "release": "0.29.0", **text})
    stand_in.write(tmp_path, {"locks/0.29.0.json": text})
    with pytest.raises(LockError) as raised:
        load(tmp_path, RELEASE)
    assert message in str(raised.value)
    assert str(raised.value).endswith("run: python -m build_hooks lock 0.29.0")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3),
    max_leaves=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lock")


@given(st.sampled_from(sorted(FIELDS)), st.sampled_from(["", "sqrt", "head"]), JSON)
def test_any_value_in_a_lock_is_held_against_the_build_or_refused(
    scratch: Path, made: Overlay, field: str, patch: str, value: object
) -> None:
    content = {"format": FORMAT, "release": "0.29.0", "wheels": {}, "licence": None, **record(made)}
    content |= {"patches": {**content["patches"], patch: value}} if patch else {field: value}
    stand_in.write(scratch, {"locks/0.29.0.json": json.dumps(content)})
    with contextlib.suppress(LockError, BaseError):
        loaded = load(scratch, RELEASE)
        assert loaded is not None
        queue = replace(made.stack.own, directory=scratch)
        status.as_text(status.from_locks(queue))
        build.hold(made.base, queue)
        verify(loaded, made)
