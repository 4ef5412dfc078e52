"""A locked release out of a wheel on the index: by ranges, checked, and whole where that fails."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from packaging.version import Version

from build_hooks import build
from build_hooks.bases.cache import cache_directory, open_release
from build_hooks.bases.index import parts, session
from build_hooks.bases.wheel import WheelBase
from build_hooks.errors import BaseError, LockError, PartialFetchError
from build_hooks.queues.lock import Lock, load
from tests.support import index, stand_in

if TYPE_CHECKING:
    from build_hooks.bases.base import Base
    from tests.support.project import Small

RELEASE = Version("0.29.0")
NAME = "vllm-0.29.0-py3-none-any.whl"
LARGE = 12_000_000
# The last one is not there: a patch adds it.
READS = ("vllm/models.py", "vllm/engine/__init__.py", "vllm/scaling.py")


def wheel_files(**changes: str | None) -> dict[str, str | bytes]:
    """Return the sources of the release with some modules changed, and a library of 12 MB."""
    return {**stand_in.sources("0.29.0", **changes), "vllm/large.so": bytes(LARGE)}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return stand_in.write_wheel(tmp_path / "made", "0.29.0", files=wheel_files())


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Watch the directory for temporary files: none is left there, whatever happens."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    assert not list(directory.iterdir())


@pytest.fixture
def served(
    project: Small, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[index.Index]:
    """Give an index with the large wheel, a project that locks it, and an empty cache."""
    project.edit_lock("0.29.0", wheels={NAME: hashlib.sha256(wheel.read_bytes()).hexdigest()})
    with index.serve() as served:
        served.add(wheel)
        index.use(monkeypatch, served.url, tmp_path / "empty")
        # pip asks for ranges too, unless metadata lie beside the wheel.
        served.metadata = True
        yield served


@pytest.fixture
def locked(project: Small, served: index.Index) -> Lock:
    found = load(project.queue, RELEASE)
    assert found is not None
    return found


def opened(project: Small) -> Base:
    return open_release(RELEASE, project.load())


def kept() -> list[Path]:
    """Return what is in the cache, but for directories."""
    return [path for path in cache_directory().parent.rglob("*") if path.is_file()]


def right(base: Base) -> bool:
    """Tell whether a base has what the release has, of the files that its build reads."""
    files = stand_in.wheel_files(wheel_files(), "0.29.0")
    texts = {path: files.get(path) for path in READS}
    assert (base.distribution, base.version, base.pristine) == ("vllm", RELEASE, True)
    return (
        all(
            base.read(path) == (text.encode() if isinstance(text, str) else text)
            for path, text in texts.items()
        )
        and base.licence() == b"The stand-in's licence.\n"
    )


# What goes well.


# Of a wheel that was moved, pip reads no ranges.
@pytest.mark.parametrize(("metadata", "moved"), [(True, False), (True, True), (False, False)])
def test_a_locked_release_is_read_in_parts(
    served: index.Index,
    project: Small,
    capfd: pytest.CaptureFixture[str],
    metadata: bool,
    moved: bool,
) -> None:
    served.metadata, served.moved = metadata, moved
    base = opened(project)
    assert right(base)
    assert base.origin == NAME
    # Where pip has to look into the wheel as well, that counts too.
    assert 0 < sum(served.parts) < 0.01 * len(served.wheels[NAME])
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "vllm 0.29.0: 3 files, 0.1 of 12.0 MB read from the index\n"
    assert len(kept()) == 3
    assert all(path.name == hashlib.sha256(path.read_bytes()).hexdigest() for path in kept())


def test_the_build_is_that_of_the_whole_wheel(
    served: index.Index, project: Small, wheel: Path
) -> None:
    made = [build.make(project, build.Settings(setting)) for setting in ("0.29.0", str(wheel))]
    assert served.parts
    assert isinstance(made[0].overlay.base, parts.LockedBase)
    assert made[0].locked
    assert made[0].overlay.modules == made[1].overlay.modules
    assert (made[0].identity, made[0].licence) == (made[1].identity, made[1].licence)


def test_a_second_build_asks_for_nothing(
    served: index.Index, project: Small, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(project)
    asked = len(served.requests)
    capfd.readouterr()
    assert right(opened(project))
    assert len(served.requests) == asked
    assert capfd.readouterr().err == "vllm 0.29.0: 3 files, 3 of them kept from earlier builds\n"


def test_a_kept_file_that_was_changed_is_read_again(
    served: index.Index, project: Small, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(project)
    changed = kept()[0]
    changed.write_bytes(b"changed")
    capfd.readouterr()
    assert right(opened(project))
    err = capfd.readouterr().err
    assert err.startswith(
        "vllm 0.29.0: 3 files, 2 of them kept from earlier builds, 0.1 of 12.0 MB"
    )
    assert hashlib.sha256(changed.read_bytes()).hexdigest() == changed.name


def test_a_wheel_in_the_cache_is_used(
    served: index.Index, project: Small, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache_directory().mkdir(parents=True)
    wheel.rename(cache_directory() / NAME)
    base = opened(project)
    assert isinstance(base, WheelBase)
    assert right(base)
    assert served.requests == []
    assert capfd.readouterr().err == ""


def test_a_release_without_a_lock_is_fetched_whole(served: index.Index, project: Small) -> None:
    project.lock_file("0.29.0").unlink()
    base = opened(project)
    assert isinstance(base, WheelBase)
    assert served.parts == []
    assert [path.name for path in kept()] == [NAME]


def test_a_file_that_the_lock_does_not_name_is_not_read(
    served: index.Index, project: Small
) -> None:
    base = opened(project)
    with pytest.raises(LockError) as raised:
        base.read("vllm/data.json")
    told = "this build reads vllm/data.json, which is not in the lock of vLLM 0.29.0"
    assert told in str(raised.value)
    assert str(raised.value).endswith("run: python -m build_hooks lock 0.29.0")


# What the index cannot do: the wheel is fetched whole, and the user told why.

Spoil = Callable[[index.Answer, int], index.Answer]
STALL = threading.Event()


def _header(name: str, value: str, since: int = 1) -> Spoil:
    def spoil(answer: index.Answer, number: int) -> index.Answer:
        if number >= since:
            answer.headers[name] = value
        return answer

    return spoil


def _instead(status: int, **headers: str) -> Spoil:
    return lambda *_: index.Answer(status, headers, b"")


def _files(change: Callable[[index.Answer], object]) -> Spoil:
    """Change what is sent for files; the first range asked for is the wheel's directory."""

    def spoil(answer: index.Answer, number: int) -> index.Answer:
        if number > 1:
            change(answer)
        return answer

    return spoil


def _set(field: str, value: Callable[[bytes], object]) -> Spoil:
    return _files(lambda answer: setattr(answer, field, value(answer.body)))


# Seconds: short for a test, long for a pip on a busy machine.
PATIENCE = 3
SILENT = f"the index was silent for {PATIENCE} s"


def _late(_: index.Answer) -> None:
    STALL.wait(30)


WHOLE: dict[str, tuple[Spoil, str]] = {
    "ranges ignored": (_instead(200), "the index does not serve ranges (it sends the whole wheel)"),
    "refused": (_instead(403), "the index answers 403 Forbidden"),
    "no range told": (_header("Content-Range", "all"), "not tell the range it sends ('all')"),
    "another range": (
        _header("Content-Range", f"bytes 0-65535/{LARGE + 5000}"),
        f"the index sends bytes 0-65535/{LARGE + 5000} where bytes=-65536 was asked for",
    ),
    "damaged": (
        _set("body", lambda body: bytes(len(body))),
        "could not be read in parts (Bad magic",
    ),
    "the end cut off": (lambda a, _: index.Answer(206, a.headers, a.body[:-9]), "read in parts ("),
    "a file cut off": (_set("body", lambda body: body[:-9]), "could not be read in parts ("),
    "late": (_files(_late), SILENT),
    "silent within a file": (
        _set("stall", lambda _: STALL),
        SILENT,
    ),
    "another tag": (_header("ETag", '"2"', since=2), "the wheel on the index changed while it was"),
    "another size": (
        _header("Content-Range", "bytes 0-9/10", since=2),
        "the wheel on the index changed while it was",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_keeps_a_wheel_from_being_read_in_parts_is_told(
    served: index.Index, locked: Lock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    served.spoil, reason = WHOLE[name]
    STALL.clear()
    monkeypatch.setenv("PIP_TIMEOUT", str(PATIENCE))
    try:
        with pytest.raises(PartialFetchError) as raised:
            parts.read_locked(RELEASE, locked, tmp_path / "kept")
    finally:
        STALL.set()
    assert reason in str(raised.value)
    assert not list((tmp_path / "kept").iterdir())


def fetched_whole(project: Small, capfd: pytest.CaptureFixture[str]) -> str:
    """Open the release, see that the whole wheel was fetched for it; return the reason given."""
    base = opened(project)
    assert isinstance(base, WheelBase)
    assert right(base)
    assert kept() == [cache_directory() / NAME]
    told = capfd.readouterr().err.splitlines()[0]
    start = "vllm 0.29.0: the whole wheel is fetched, for "
    assert told.startswith(start)
    return told.removeprefix(start)


def test_then_the_wheel_is_fetched_whole(
    served: index.Index, project: Small, capfd: pytest.CaptureFixture[str]
) -> None:
    served.spoil, reason = WHOLE["ranges ignored"]
    assert fetched_whole(project, capfd) == reason


def test_pip_is_stopped_before_it_fetches_the_wheel_only_to_say_where_it_lies(
    served: index.Index, project: Small, capfd: pytest.CaptureFixture[str]
) -> None:
    served.metadata = served.ranges = False
    assert fetched_whole(project, capfd) == (
        "the index has no metadata beside the wheel (PEP 658), and pip gets none by ranges"
    )


def test_a_pip_that_does_not_tell_is_no_end(
    served: index.Index,
    project: Small,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settings of ``pip install`` do not keep ``pip download`` from working."""
    monkeypatch.setenv("PIP_TARGET", "/nowhere")
    monkeypatch.setenv("PIP_USER", "1")
    reason = fetched_whole(project, capfd)
    assert reason.startswith("pip does not tell where the wheel lies: ERROR: ")


# What is an error: nothing is fetched in its place.


def refused(served: index.Index, project: Small) -> str:
    with pytest.raises(BaseError) as raised:
        opened(project)
    # Of the wheel, nothing was read but ranges, and nothing but checked files is kept.
    whole = [path for path in served.requests if path.endswith(".whl")]
    assert len(whole) == len(served.parts)
    assert NAME not in {path.name for path in kept()}
    return str(raised.value)


OTHER = "the index serves another file under that name. Do not use it; name a wheel you trust in"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (wheel_files(models="A = 1\n"), f"{NAME}: vllm/models.py has sha256 "),
        (
            wheel_files(models=None),
            f"{NAME}: vllm/models.py is not there, but the lock of vLLM 0.29.0",
        ),
        (wheel_files(scaling="A = 1\n"), f"{NAME}: vllm/scaling.py has sha256 "),
    ],
)
def test_another_file_than_the_locked_one_is_refused(
    served: index.Index, project: Small, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    served.add(stand_in.write_wheel(tmp_path / "other", "0.29.0", files=files))
    served.hashes = False
    told = refused(served, project)
    assert told.startswith(message)
    assert f": {OTHER} NRL_VLLM_BASE." in told
    assert kept() == []


def test_another_licence_is_refused(served: index.Index, locked: Lock, project: Small) -> None:
    project.edit_lock("0.29.0", licence="0" * 64)
    assert f"LICENSE has sha256 {locked.licence}, but the lock" in refused(served, project)


def test_a_member_that_claims_too_much_is_refused(
    served: index.Index, project: Small, tmp_path: Path
) -> None:
    files = wheel_files(models="#" * (17 << 20))
    served.add(stand_in.write_wheel(tmp_path / "other", "0.29.0", files=files))
    served.hashes = False
    assert f"vllm/models.py claims {17 << 20} bytes; 16777216 at most" in refused(served, project)
    assert sum(served.parts) < LARGE // 10


def test_another_wheel_by_the_indexs_own_word_is_not_read(
    served: index.Index, locked: Lock, project: Small, tmp_path: Path
) -> None:
    files = wheel_files(other="A = 1\n")
    served.add(stand_in.write_wheel(tmp_path / "other", "0.29.0", files=files))
    found = hashlib.sha256(served.wheels[NAME]).hexdigest()
    assert refused(served, project).startswith(
        f"the index gives {NAME} the sha256 {found}, but the lock says {locked.wheels[NAME]}: "
    )
    assert served.parts == []


def test_a_release_that_is_not_there_is_asked_for_once(served: index.Index, project: Small) -> None:
    served.wheels.clear()
    message = refused(served, project)
    assert message.startswith("vLLM 0.29.0 could not be fetched by pip:\n")
    assert "No matching distribution found for vllm==0.29.0" in message
    assert served.requests == ["/simple/vllm/"]


# As pip is set up, so it is done.


def test_credentials_of_the_index_are_used(
    served: index.Index, project: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.credentials = "me:p@ss/word"
    url = served.url.replace("http://", "http://me:p%40ss%2Fword@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    assert right(opened(project))
    assert served.parts


def test_of_two_indexes_of_one_host_the_nearer_gives_the_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.use(monkeypatch, "http://a:1@index.invalid:8080/one/simple", tmp_path)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://b:2@index.invalid:8080/two/simple")
    wheels = {
        "http://index.invalid:8080/one/files/x.whl": ("a", "1"),
        "http://index.invalid:8080/two/files/x.whl": ("b", "2"),
        "http://index.invalid/two/files/x.whl": None,
        "http://other.invalid:8080/one/files/x.whl": None,
    }
    assert {url: session.session(url).auth for url in wheels} == wheels


@pytest.fixture
def netrc(served: index.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the index ask for credentials that only a .netrc has."""
    served.credentials = "me:secret"
    file = tmp_path / "netrc"
    file.write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(file))


@pytest.mark.usefixtures("netrc")
def test_a_netrc_is_used(served: index.Index, project: Small) -> None:
    assert right(opened(project))
    assert served.parts


@pytest.mark.usefixtures("netrc")
def test_a_proxy_is_used(
    served: index.Index, project: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is out of reach but by the proxy, which is this server; a .netrc still counts."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "index.invalid")
    monkeypatch.setenv("PIP_PROXY", served.url.removesuffix("/simple"))
    assert right(opened(project))
    assert served.parts
    assert all(path.startswith("http://index.invalid/") for path in served.requests)


@pytest.fixture
def secure(
    served: index.Index, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[index.Index]:
    """Give the index over TLS, by an authority that nobody knows, with a client's certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("me@example.org").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "client.pem"
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with index.serve(context) as secure:
        secure.add(wheel)
        secure.metadata = True
        # By its name: some pips cannot verify an address.
        monkeypatch.setenv("PIP_INDEX_URL", secure.url.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("PIP_CLIENT_CERT", str(tmp_path / "client.pem"))
        yield secure


@pytest.mark.parametrize(
    ("name", "value"), [("PIP_CERT", "{}/authority.pem"), ("PIP_TRUSTED_HOST", "localhost")]
)
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_certificates_are_those_of_pip(
    secure: index.Index,
    project: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value.format(tmp_path))
    assert right(opened(project))
    assert secure.parts


def test_a_wheel_on_disk_is_read_where_it_lies(
    served: index.Index,
    project: Small,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    assert right(opened(project))
    assert served.requests == []
    assert len(kept()) == 3
    assert capfd.readouterr().err == f"vllm 0.29.0: 3 files, read from {wheel}\n"


@pytest.mark.parametrize(("first", "last"), [("a", "z"), ("z", "a")])
def test_settings_are_taken_in_pips_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, last: str
) -> None:
    """The machine's file, then the user's, then the section of the command, then variables."""
    index.use(monkeypatch, "http://127.0.0.1/simple", tmp_path)
    everyone = "[global]\ntimeout = 1\nproxy = http://a=b\nretries = 3\n[install]\ncert = x\n"
    user = "[global]\ntimeout = 2\ncert = y\n"
    stand_in.write(tmp_path, {f"{first}/pip/pip.conf": everyone, f"{last}/pip/pip.conf": user})
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / first))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / last))
    monkeypatch.delenv("PIP_CONFIG_FILE")
    found = session.settings()
    assert (found["timeout"], found["proxy"], found["cert"]) == ("2", "http://a=b", "x")
    assert (found["retries"], found["index-url"]) == ("0", "http://127.0.0.1/simple")
    assert session.timeout() == 2
