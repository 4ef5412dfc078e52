"""Builds that fail: they say why, leave no wheel, and change no file."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import installed, source, stand_in

Spoil = Callable[[source.Tree, Path], "str | Path | None"]


def nothing_left(out: Path) -> bool:
    return not out.exists() or not [path for path in out.iterdir() if path.name != ".gitignore"]


def _rewritten(old: str, new: str) -> Spoil:
    """Give a wheel of the release in which a line of a module is another one."""

    def write(tree: source.Tree, scratch: Path) -> Path:
        files = stand_in.sources("0.29.0")
        assert old in files["vllm/models.py"]
        files["vllm/models.py"] = files["vllm/models.py"].replace(old, new)
        return stand_in.write_wheel(scratch, "0.29.0", files=files)

    return write


def _other_lock(tree: source.Tree, scratch: Path) -> None:
    file = tree.root / "overlay" / "locks" / "0.29.0.json"
    content = json.loads(file.read_text())
    content["served"]["vllm/models.py"] = "0" * 64
    file.write_text(json.dumps(content))


def _conflicting_patch(tree: source.Tree, scratch: Path) -> None:
    overlay = tree.root / "overlay"
    stand_in.write_series(overlay, ["sqrt", "again", "scale", "head"])
    text = stand_in.PATCHES["sqrt"]["0.25.0"].replace("abs(x)", "x * x")
    stand_in.write_patch(overlay, "again", {"0.25.0": text})


def _ask(*command: str) -> str:
    process = subprocess.run(
        [source.PYTHON, "-m", *command], capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


# Where the tools of isolated builds are kept, whatever XDG_CACHE_HOME says.
CACHES = {"UV_CACHE_DIR": _ask("uv", "cache", "dir"), "PIP_CACHE_DIR": _ask("pip", "cache", "dir")}

TOML = "overlay/patches/sqrt/patch.toml"
REWRITTEN = "calls itself vLLM 0.29.0, but differs from that release"
# One fault of each room that a build goes through.
REFUSED: dict[str, tuple[Spoil, str]] = {
    "garbage": (lambda *_: "garbage", "NRL_VLLM_BASE: 'garbage' is none of: 'installed', a rel"),
    "malformed TOML": (
        lambda tree, _: tree.edit(TOML, "=", ":"), "patches/sqrt/patch.toml: not TOML"
    ),
    "a rewritten release": (_rewritten("import math", "import math  # rewritten"), REWRITTEN),
    "a rewritten hunk": (_rewritten("math.sqrt(x)", "math.sqrt(x) + 0"), REWRITTEN),
    "patches that conflict": (
        _conflicting_patch,
        "again (0.25.0.patch): vllm/models.py, hunk 1: conflicts with sqrt, which comes before it",
    ),
    "another lock": (_other_lock, "does not reproduce its lock"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_build_that_is_not_right_leaves_nothing(
    tree: source.Tree, tmp_path: Path, name: str
) -> None:
    spoil, message = REFUSED[name]
    base = spoil(tree, tmp_path)
    before = tree.snapshot()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    said = tree.build("plain", tmp_path / "out", base=base, env=env, succeeds=False)
    assert message in said
    assert "Traceback" not in said
    assert nothing_left(tmp_path / "out")
    assert not list(temporary.glob("vllm-nemo-*"))
    assert tree.snapshot() == before


# One of each kind: what they do with a fault does not depend on their other options.
FRONT_ENDS = ("plain", "build", "build --sdist", "uv build", "python -m build_hooks")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_fault_found_after_the_metadata_leaves_nothing(
    tree: source.Tree, tmp_path: Path, front_end: str
) -> None:
    """A release's metadata are made without its wheel, so the build itself is what fails."""
    _other_lock(tree, tmp_path)
    env = {"XDG_CACHE_HOME": str(tree.wheels.parent.parent), "TMPDIR": str(tmp_path), **CACHES}
    sdist = front_end == "build --sdist"
    said = tree.build(front_end, tmp_path / "out", base="0.29.0", env=env, succeeds=sdist)
    # An sdist holds no overlay: to make one needs no base.
    assert ("does not reproduce its lock" in said) != sdist
    assert "Traceback" not in said
    left = [path.name for path in (tmp_path / "out").glob("vllm_nemo*")]
    assert not [name for name in left if name.endswith(".whl")]
    assert not list(tmp_path.glob("vllm-nemo-*"))


@pytest.mark.parametrize(
    ("front_end", "value"), [("plain", "1"), *((name, "true") for name in FRONT_ENDS)]
)
def test_no_hooks_is_no_wheel(
    tree: source.Tree, tmp_path: Path, front_end: str, value: str
) -> None:
    env = {"HATCH_BUILD_NO_HOOKS": value}
    said = tree.build(front_end, tmp_path / "out", env=env, succeeds=False)
    assert "HATCH_BUILD_NO_HOOKS would give a wheel without an overlay; unset it" in said
    assert nothing_left(tmp_path / "out")


def test_no_hooks_is_no_wheel_from_the_sdist(tree: source.Tree, tmp_path: Path) -> None:
    tree.build("build --sdist", tmp_path)
    with tarfile.open(tmp_path / "vllm_nemo-0.29.0.1.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = source.Tree(tmp_path / "unpacked" / "vllm_nemo-0.29.0.1", tree.wheels)
    env = {"HATCH_BUILD_NO_HOOKS": "true"}
    said = unpacked.build("plain", tmp_path / "out", env=env, succeeds=False)
    assert "HATCH_BUILD_NO_HOOKS would give a wheel without an overlay; unset it" in said
    assert nothing_left(tmp_path / "out")


def test_editable_is_refused(tree: source.Tree, tmp_path: Path) -> None:
    before = tree.snapshot()
    environment = installed.make(tmp_path / "venv")
    sentence = "vllm-nemo cannot be installed in editable mode"
    remedy = "pip wheel --no-deps -w dist ."
    for command in (
        ("pip", "install", "--dry-run", "--no-deps", "--no-build-isolation", "--editable", "."),
        ("uv", "pip", "install", "--no-deps", "--python", environment.python, "--editable", "."),
    ):
        process = tree.run(source.PYTHON, "-m", *command)
        assert process.returncode != 0
        assert sentence in process.stdout
        assert remedy in " ".join(process.stdout.split())
    assert not list(environment.site_packages.glob("*vllm*"))
    assert tree.snapshot() == before


def test_a_wheel_that_was_there_stays_as_it_was(tree: source.Tree, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tree.build("plain", out)
    (wheel,) = out.iterdir()
    before = wheel.read_bytes()
    _other_lock(tree, tmp_path)
    for front_end in ("plain", "python -m build_hooks"):
        tree.build(front_end, out, succeeds=False)
        assert wheel.read_bytes() == before


def test_the_temporary_files_of_a_build_are_removed(tree: source.Tree, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    tree.build("python -m build_hooks", tmp_path / "out", env=env)
    assert not list(tmp_path.glob(f"{tempfile.gettempprefix()}*"))
    assert not list(tmp_path.glob("vllm-nemo-*"))
