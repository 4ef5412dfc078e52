"""Bytecode where its cache is full, cut short, shared by a crowd, from the future, or forbidden."""

from __future__ import annotations

import os
import py_compile
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import hostile, installed

ORIGINS = """\
import vllm.models, vllm.engine.core, vllm.extra.inside
print(vllm.models.ORIGIN, vllm.engine.core.ORIGIN, vllm.extra.inside.ORIGIN)
"""
SERVED = "served served served"
CACHED = ("models", "core", "inside")


def cached(environment: installed.Interpreter) -> list[str]:
    """Return which of the modules above have bytecode beside them, sorted."""
    found = (environment.file("vllm_nemo/_modules")).rglob("__pycache__/*")
    return sorted(path.name.split(".")[0] for path in found if path.name.startswith(CACHED))


def bytecode(environment: installed.Interpreter) -> Path:
    """Return where the bytecode of a served module is cached."""
    code = "import vllm.models; print(vllm.models.__spec__.cached)"
    return Path(environment.prints("-B", "-c", code))


def test_sixty_four_interpreters_at_once(own: installed.Interpreter) -> None:
    """All wait for the end of one pipe, and import vLLM for the first time when it is closed."""
    waits, release = os.pipe()
    code = "import sys; sys.stdin.read()\n" + ORIGINS
    processes = [
        subprocess.Popen(
            [own.python, "-c", code],
            stdin=waits,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=hostile.environment(),
        )
        for _ in range(64)
    ]
    os.close(waits)
    assert not cached(own)
    os.close(release)
    said = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert said == [SERVED] * 64
    assert cached(own) == sorted(CACHED)
    assert own.prints("-c", ORIGINS) == SERVED


KILLED = """\
import os, signal, sys
left = int(sys.argv[1])
def hook(event, arguments):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
COUNTED = """\
import sys
count = 0
def hook(event, arguments):
    global count
    count += 1
sys.addaudithook(hook)
"""


def test_an_interpreter_killed_anywhere_in_its_first_import(own: installed.Interpreter) -> None:
    """By SIGKILL at events of the interpreter's own audit, spread over all of them."""
    events = int(own.prints("-B", "-c", COUNTED + ORIGINS + "print(count)").splitlines()[-1])
    assert events > 100
    ends = []
    for left in range(1, events, events // 16):
        for cache in own.root.rglob("vllm*/**/*.pyc"):
            cache.unlink()
        ends.append(own.run("-c", KILLED + ORIGINS, str(left)).returncode)
        assert own.prints("-c", ORIGINS) == SERVED
    assert ends == [-signal.SIGKILL] * len(ends)
    assert own.run("-m", "vllm_nemo", "verify").returncode == 0


def forget(environment: installed.Interpreter) -> int:
    """Cache all bytecode, then remove that of served modules; return the size of the largest."""
    assert environment.prints("-c", ORIGINS) == SERVED
    found = list(environment.file("vllm_nemo/_modules").rglob("*.pyc"))
    sizes = [path.stat().st_size for path in found]
    for path in found:
        path.unlink()
    return max(sizes)


LIMITED = """\
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
"""


def test_bytecode_that_cannot_be_written_whole(own: installed.Interpreter) -> None:
    """The largest is a byte longer than a file may be, so that its write is cut short."""
    size = forget(own)
    assert own.prints("-c", LIMITED + ORIGINS, str(size - 1)) == SERVED
    assert cached(own) == ["core", "inside"]
    assert own.prints("-c", ORIGINS) == SERVED
    assert bytecode(own).stat().st_size == size


@pytest.mark.parametrize("pages", [0, 1])
def test_a_full_disk(own: installed.Interpreter, tmp_path: Path, pages: int) -> None:
    """A file system with no page left, or with one, which is less than the bytecode needs."""
    served = own.served("vllm/models.py")
    # Two pages of bytecode.
    digest = installed.sha256(served.read_text())
    text = served.read_text() + "".join(f"name_{number} = {number}\n" for number in range(600))
    served.write_text(text)
    manifest = own.file("vllm_nemo/manifest.json")
    manifest.write_text(manifest.read_text().replace(digest, installed.sha256(text)))
    assert 4096 < forget(own) < 65536
    script = f"""\
mv "$ENV" "$COPY"
mkdir "$ENV"
mount -t tmpfs -o size=16m none "$ENV"
cp -a "$COPY/." "$ENV"
dd if=/dev/zero of="$ENV/filler" bs=4096 2>/dev/null || true
truncate -s -{pages * 4096} "$ENV/filler"
"$ENV/bin/python" -c "$CODE"
find "$ENV" -path "*_modules*" -name "models*.pyc*"
rm "$ENV/filler"
"""
    command = [*hostile.mounts(script), own.python, "-c", ORIGINS]
    env = {"ENV": str(own.root), "COPY": str(tmp_path / "copy"), "CODE": ORIGINS}
    assert hostile.prints(command, env=env).splitlines() == [SERVED, SERVED]


def test_the_overlays_own_bytecode_cut_short(own: installed.Interpreter) -> None:
    """Python's own doing on a full disk: every start says so, and the doctor fails."""
    assert own.prints("-c", ORIGINS) == SERVED
    (cache,) = own.file("vllm_nemo/__pycache__").glob("__init__.*.pyc")
    cache.write_bytes(cache.read_bytes()[:-100])
    error = own.run("-c", "pass").stderr
    assert f"Error processing line 1 of {own.file('vllm_nemo.pth')}" in error
    assert "EOFError" in error
    assert own.run("-m", "vllm_nemo", "doctor").returncode == 1
    assert "ModuleNotFoundError: No module named 'vllm.extra'" in own.fails("-c", ORIGINS)
    hostile.prints(["find", own.file("vllm_nemo"), "-name", "*.pyc", "-delete"])
    assert own.prints("-c", ORIGINS) == SERVED


@pytest.mark.parametrize("seconds", [-(2**31), 2**32 + 5, 4102444800], ids=str)
@pytest.mark.parametrize("of", ["source", "bytecode"])
def test_a_clock_that_is_wrong(own: installed.Interpreter, of: str, seconds: int) -> None:
    """Files from long ago, of the future, and beyond what a .pyc can say."""
    assert own.prints("-c", ORIGINS) == SERVED
    file = own.served("vllm/models.py") if of == "source" else bytecode(own)
    for path in (file, own.file("vllm/models.py")):
        os.utime(path, (seconds, seconds))
    for _ in range(2):
        assert own.prints("-c", ORIGINS) == SERVED
    # What is served goes by content: another one of the same time is refused, not run.
    served = own.served("vllm/models.py")
    served.write_text(served.read_text().replace("'served'", "'edited'"))
    os.utime(served, (seconds, seconds))
    assert "is changed since it was built" in own.fails("-c", ORIGINS)


@pytest.mark.parametrize("mode", [mode.name for mode in py_compile.PycInvalidationMode])
@pytest.mark.parametrize("epoch", [None, "315532800"])
def test_an_image_builder_that_compiles_everything(
    own: installed.Interpreter, mode: str, epoch: str | None
) -> None:
    env = {"SOURCE_DATE_EPOCH": epoch} if epoch else {}
    options = ["--invalidation-mode", mode.lower().replace("_", "-")]
    own.prints("-m", "compileall", "-q", *options, own.site_packages, env=env)
    assert cached(own) == sorted(CACHED)
    assert own.prints("-c", ORIGINS, env=env) == SERVED
    assert own.run("-m", "vllm_nemo", "doctor", env=env).returncode == 0
    # Bytecode of something else, as an earlier layer of the image may have left it.
    other = own.root / "other.py"
    other.write_text("ORIGIN = 'left over'\n")
    left = f"{str(other)!r}, {str(bytecode(own))!r}, doraise=True"
    code = (
        f"import py_compile as p; p.compile({left}, invalidation_mode=p.PycInvalidationMode.{mode})"
    )
    own.prints("-c", code)
    for flags in ([], ["--check-hash-based-pycs", "never"]):
        assert own.prints(*flags, "-c", ORIGINS, env=env) == SERVED


@pytest.mark.parametrize("cache", ["absent", "filled"])
def test_a_cache_directory_that_only_its_owner_may_write(tmp_path: Path, cache: str) -> None:
    own = installed.install(tmp_path / "env")
    if cache == "filled":
        own.prints("-c", ORIGINS)
    before = hostile.contents(own.root)
    python = [*hostile.nobody(), own.python]
    assert hostile.prints([*python, "-c", ORIGINS]) == SERVED
    assert hostile.contents(own.root) == before
    assert bool(cached(own)) == (cache == "filled")


def test_a_process_that_is_to_write_no_bytecode(own: installed.Interpreter) -> None:
    before = hostile.contents(own.root)
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        assert own.prints("-c", ORIGINS, env=env) == SERVED
    assert own.run("-m", "vllm_nemo", "doctor", env=env).returncode == 0
    assert hostile.contents(own.root) == before


@pytest.mark.parametrize("kind", ["missing", "read-only", "file"])
def test_a_prefix_for_bytecode_that_cannot_be_written(
    own: installed.Interpreter, tmp_path: Path, kind: str
) -> None:
    prefix = tmp_path / "cache"
    if kind == "file":
        prefix.write_text("")
    elif kind == "read-only":
        prefix.mkdir()
    env = {"PYTHONPYCACHEPREFIX": str(prefix)}
    python = [*hostile.nobody(), own.python] if kind != "file" else [own.python]
    assert hostile.prints([*python, "-c", ORIGINS], env=env) == SERVED
    assert not list(prefix.glob("*"))
    assert not cached(own)
