"""Locks: what is recorded, and that each kind of difference is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from build_hooks import assemble, base, lock, queue
from build_hooks.errors import LockError
from tests.support import stand_in

RELEASE = Version("0.29.0")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> assemble.Overlay:
    """Give the small queue on its newest release."""
    directory = tmp_path_factory.mktemp("made")
    loaded = queue.load(stand_in.write_queue(directory / "overlay"))
    return assemble.assemble(loaded, base.from_wheel(stand_in.write_wheel(directory, "0.29.0")))


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path, made: assemble.Overlay) -> None:
    assert lock.load(tmp_path, RELEASE) is None
    file = lock.write(tmp_path, made, {"b.whl": "2", "a.whl": "1"})
    assert file == tmp_path / "locks" / "0.29.0.json"
    loaded = lock.load(tmp_path, RELEASE)
    assert loaded is not None
    assert (loaded.release, loaded.wheels) == ("0.29.0", {"a.whl": "1", "b.whl": "2"})
    assert list(loaded.wheels) == ["a.whl", "b.whl"]
    licence = made.base.licence()
    assert licence
    assert loaded.licence == assemble.sha256(licence)
    assert loaded.content == lock.record(made)
    lock.verify(loaded, made)
    written = file.read_bytes()
    assert lock.write(tmp_path, made, {"a.whl": "1", "b.whl": "2"}).read_bytes() == written


def test_a_lock_tells_what_was_read_and_made(made: assemble.Overlay) -> None:
    record = lock.record(made)
    stock = {p: t.encode() for p, t in stand_in.sources("0.29.0").items()}
    assert record["stock"] == {
        "vllm/engine/__init__.py": assemble.sha256(stock["vllm/engine/__init__.py"]),
        "vllm/models.py": assemble.sha256(stock["vllm/models.py"]),
        "vllm/scaling.py": None,
    }
    assert list(record["patches"]) == ["sqrt", "scale", "head"]
    assert record["patches"]["head"] == {
        "outcome": "not-needed",
        "reason": "Upstream returns a float.",
    }
    assert record["patches"]["scale"] == {
        "outcome": "applied",
        "variant": "0.29.0",
        "sha256": assemble.sha256(stand_in.PATCHES["scale"]["0.29.0"].encode()),
        "offsets": {"vllm/scaling.py": [0], "vllm/models.py": [0]},
        "note": "Read the new comment.",
    }
    assert record["served"] == {m.path: assemble.sha256(m.served) for m in made.modules}


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
        (_set("patches", "gone", to={}), "patches: gone: locked, but not in this build"),
        (_set("patches", "scale", "outcome", to="present"), "patches: scale: outcome: "),
        (_set("patches", "scale", "variant", to="0.25.0"), "patches: scale: variant: "),
        (_set("patches", "scale", "sha256", to="0"), "patches: scale: sha256: "),
        (_set("patches", "scale", "note", to=None), "patches: scale: note: in this build"),
        (_set("patches", "head", "reason", to="x"), "patches: head: reason: "),
        (
            _set("patches", "sqrt", "offsets", "vllm/models.py", to=[3]),
            "patches: sqrt: offsets: vllm/models.py: [4], but locked is [3]",
        ),
        (_reorder, "patches: the order is sqrt, scale, head, but locked is head, scale, sqrt"),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path,
    made: assemble.Overlay,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    file = lock.write(tmp_path, made, {})
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    loaded = lock.load(tmp_path, RELEASE)
    assert loaded is not None
    with pytest.raises(LockError) as raised:
        lock.verify(loaded, made)
    text = str(raised.value)
    assert text.startswith("The build of vLLM 0.29.0 does not reproduce its lock:\n")
    assert message in text
    assert text.endswith("on purpose, run: python -m build_hooks lock 0.29.0")
    assert len(text.splitlines()) == 3


def test_all_differences_are_told_at_once(tmp_path: Path, made: assemble.Overlay) -> None:
    content = {**lock.record(made), "stock": {}, "served": {}}
    with pytest.raises(LockError) as raised:
        lock.verify(lock.Lock("0.29.0", {}, None, content), made)
    assert str(raised.value).count("in this build, but not locked") == 2 * len(made.modules)


def test_stock_differences_name_the_files_that_are_read(made: assemble.Overlay) -> None:
    content = lock.record(made)
    content["stock"] |= {"vllm/models.py": "0", "vllm/unread.py": "0"}
    assert lock.stock_differences(lock.Lock("0.29.0", {}, None, content), made) == [
        "vllm/models.py"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        (b"\xff", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a lock of format 2"),
        ("{}", "is not a lock of format 2"),
        ({"format": 1}, "is not a lock of format 2"),
        ({"extra": 1}, "is not a lock of format 2"),
        ({"release": "0.28.0"}, "is the lock of 0.28.0"),
        ({"wheels": []}, "'wheels' is damaged"),
        ({"wheels": {"a.whl": None}}, "'wheels' is damaged"),
        ({"stock": {"vllm/models.py": 1}}, "'stock' is damaged"),
        ({"patches": {"one": "applied"}}, "'patches' is damaged"),
        ({"served": None}, "'served' is damaged"),
        ({"licence": 1}, "'licence' is damaged"),
    ],
)
def test_a_malformed_lock_is_refused(
    tmp_path: Path, text: str | bytes | dict[str, Any], message: str
) -> None:
    if isinstance(text, dict):
        empty = {"wheels": {}, "licence": None, "stock": {}, "patches": {}, "served": {}}
        text = json.dumps({"format": 2, "release": "0.29.0", **empty, **text})
    stand_in.write(tmp_path, {"locks/0.29.0.json": text})
    with pytest.raises(LockError) as raised:
        lock.load(tmp_path, RELEASE)
    assert message in str(raised.value)
    assert str(raised.value).endswith("run: python -m build_hooks lock 0.29.0")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(st.sampled_from(sorted(lock._FIELDS)), JSON)
def test_any_value_in_a_lock_is_held_against_the_build_or_refused(
    tmp_path_factory: pytest.TempPathFactory, made: assemble.Overlay, field: str, value: object
) -> None:
    directory = tmp_path_factory.mktemp("lock")
    empty = {"format": 2, "release": "0.29.0", "wheels": {}, "licence": None}
    content = {**empty, **lock.record(made), field: value}
    stand_in.write(directory, {"locks/0.29.0.json": json.dumps(content)})
    try:
        loaded = lock.load(directory, RELEASE)
        assert loaded is not None
        lock.stock_differences(loaded, made)
        lock.verify(loaded, made)
    except LockError:
        pass
