"""The maintainer's commands: what they print, what they write, how they end."""

from __future__ import annotations

import json
import runpy
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_hooks import cli
from tests.support import index, stand_in

if TYPE_CHECKING:
    from tests.support.project import Project

ROOT = Path(__file__).parent.parent.parent
PATCHES = list(stand_in.PATCHES)


@pytest.fixture
def tree(project: Project) -> Project:
    """Make the project one that hatchling can build."""
    for name in ("pyproject.toml", "README.md"):
        (project.root / name).write_bytes((ROOT / name).read_bytes())
    for name in ("build_hooks", "overlay/vllm_nemo", "overlay/vllm_nemo.pth"):
        (project.root / name).symlink_to(ROOT / name)
    (project.root / "overlay" / "vllm_nemo.start").symlink_to(ROOT / "overlay/vllm_nemo.start")
    return project


def ran(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    assert cli.main(arguments) == status
    return capsys.readouterr()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    out, err = ran(capsys, *arguments, status=1)
    assert out == ""
    assert err.startswith("error: ")
    return err


def test_no_sense_ends_with_2(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["bake"], ["status", "--json", "--markdown"], ["port", "0.29.0"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 2


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for command in ("build", "lock", "status", "port", "refresh", "lint"):
        assert f"\n    {command}" in out
    assert "Exit status: 0" in out


# build


def test_build_prints_the_wheel_and_reports(
    tree: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tree.root / "out"
    printed, told = ran(capfd, "build", "0.26.0", "--out", str(out))  # type: ignore[arg-type]
    wheel = out / "vllm_nemo-0.26.0.1-py3-none-any.whl"
    assert printed == f"{wheel}\n"
    assert list(out.iterdir()) == [wheel]
    assert told.splitlines()[:7] == [
        "vllm-nemo 0.26.0.1 for vLLM 0.26.0 (vllm-0.26.0-py3-none-any.whl)",
        "",
        "patch  outcome  files                    offsets",
        "-----  -------  -----------------------  -------",
        "sqrt   applied  vllm/engine/__init__.py  0",
        "                vllm/models.py           +4",
        "scale  applied  vllm/models.py           +4",
    ]
    assert "built in " in told


def test_build_of_all_releases(tree: Project, capfd: pytest.CaptureFixture[str]) -> None:
    out = tree.root / "out"
    printed, told = ran(capfd, "build", "--all", "--out", str(out))  # type: ignore[arg-type]
    assert sorted(out.iterdir()) == [Path(line) for line in printed.splitlines()]
    assert [path.name for path in sorted(out.iterdir())] == [
        f"vllm_nemo-{release}.1-py3-none-any.whl" for release in stand_in.RELEASES
    ]
    assert "note: Read the new comment." in told
    assert "head   not-needed  Upstream returns a float." in told


def test_build_takes_the_environments_base_and_wheels_from_a_directory(
    tree: Project, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRL_VLLM_BASE", "0.25.0")
    monkeypatch.chdir(tree.root)
    printed, _ = ran(capfd, "build")  # type: ignore[arg-type]
    assert printed == f"{tree.root}/dist/vllm_nemo-0.25.0.1-py3-none-any.whl\n"
    elsewhere = tree.root / "elsewhere"
    tree.wheels.rename(elsewhere)
    printed, _ = ran(capfd, "build", "0.26.0", "--wheels", str(elsewhere))  # type: ignore[arg-type]
    assert printed == f"{tree.root}/dist/vllm_nemo-0.26.0.1-py3-none-any.whl\n"


def test_a_failed_build_ends_with_1_and_leaves_nothing(
    tree: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tree.root / "out"
    with pytest.raises(SystemExit) as ended:
        cli.main(["build", "newest", "--out", str(out)])
    assert "error: NRL_VLLM_BASE='newest' is none of" in str(ended.value)
    assert not out.exists() or not list(out.iterdir())


# lock


def test_lock_writes_and_keeps_the_hashes_of_other_wheels(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    locks = project.overlay / "locks"
    before = {path.name: path.read_bytes() for path in locks.iterdir()}
    (locks / "0.25.0.json").unlink()
    out, _ = ran(capsys, "lock")
    assert out.splitlines() == [f"{r}: overlay/locks/{r}.json" for r in stand_in.RELEASES]
    assert {path.name: path.read_bytes() for path in locks.iterdir()} == before
    project.edit_lock("0.26.0", wheels={"vllm-0.26.0-cp38-abi3-win_arm64.whl": "1"})
    ran(capsys, "lock", "0.26.0")
    wheels = json.loads((locks / "0.26.0.json").read_text())["wheels"]
    assert list(wheels) == [
        "vllm-0.26.0-cp38-abi3-win_arm64.whl",
        "vllm-0.26.0-py3-none-any.whl",
    ]


def test_lock_replaces_a_malformed_lock(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what the message about one says to run."""
    file = project.overlay / "locks" / "0.26.0.json"
    before = file.read_bytes()
    file.write_text("{")
    assert "run: python -m build_hooks lock 0.26.0" in refused(capsys, "status")
    ran(capsys, "lock", "0.26.0")
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("0.27.0", "0.27.0 is not in series.toml; add it to `releases` first"),
        ("newest", "'newest' is neither on disk nor a release such as 0.29.0"),
    ],
)
def test_lock_refuses_what_is_not_supported(
    project: Project, capsys: pytest.CaptureFixture[str], release: str, message: str
) -> None:
    assert message in refused(capsys, "lock", release)


# status


def test_status_from_the_locks(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "status")[0].startswith("patch  0.25.0   0.26.0   0.29.0\n")
    assert ran(capsys, "status", "--markdown")[0].startswith("| patch | 0.25.0 |")
    cells = json.loads(ran(capsys, "status", "--json")[0])
    assert len(cells) == 9
    assert set(cells[0]) == {"patch", "base", "outcome", "remark"}


def test_status_is_1_where_a_build_would_fail(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = project.directory("broken", "0.26.0", models="pass\n")
    ran(capsys, "status", "--against", "0.29.0")
    out, _ = ran(
        capsys, "status", "--json", "--against", "0.29.0", "--against", str(broken), status=1
    )
    assert [(c["base"], c["outcome"]) for c in json.loads(out) if c["patch"] == "sqrt"] == [
        ("0.29.0", "applied"),
        ("0.26.0", "conflict"),
    ]
    (project.overlay / "locks" / "0.26.0.json").unlink()
    ran(capsys, "status", status=1)


def test_status_of_the_newest_release(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "cache")
        for release in ("0.26.0", "0.29.0"):
            served.add(project.wheels / f"vllm-{release}-py3-none-any.whl")
        out, err = ran(capsys, "status", "--newest")
        assert out.startswith("patch  0.29.0\n")
        assert "newer" not in err
        # Its sources are those of the newest that is supported, so that every patch applies.
        for release in ("0.30.0", "0.31.0"):
            served.add(
                stand_in.write_wheel(
                    project.root / "new", release, files=stand_in.sources("0.29.0")
                )
            )
        out, err = ran(capsys, "status", "--newest", status=1)
    assert out.startswith("patch  0.31.0\n")
    assert "conflict" not in out
    assert err.splitlines()[-1] == (
        "newer than every supported release: 0.31.0, 0.30.0; "
        "run: python -m build_hooks port 0.29.0 0.31.0"
    )


def test_status_of_the_newest_release_of_an_empty_index(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "cache")
        assert "pip found no release of vLLM" in refused(capsys, "status", "--newest")


def test_status_against_what_is_installed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no vLLM is installed here" in refused(capsys, "status", "--against", "installed")
    project.install("0.26.0")
    assert "applied" in ran(capsys, "status", "--against", "installed")[0]


# port and refresh


def test_port_and_refresh_carry_a_patch_over(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    models = stand_in.sources("0.29.0")["vllm/models.py"].replace("return 2 * x", "return x + x")
    files = stand_in.sources("0.29.0") | {"vllm/models.py": models}
    new = stand_in.write_wheel(project.root, "0.30.0", files=files)
    out, err = ran(capsys, "port", "0.29.0", str(new), status=1)
    assert err == "Add 0.30.0 to `releases` in overlay/series.toml before you refresh or lock.\n"
    assert out.splitlines()[0].split() == ["patch", "on", "0.30.0", "remark"]
    home = project.root / "build" / "port" / "0.30.0" / "scale"
    assert f"refresh scale --release 0.30.0 --tree {home}" in out
    file = home / "vllm" / "models.py"
    text = file.read_text()
    start, end = text.index("<<<<<<<"), text.index(">>>>>>> patch\n") + len(">>>>>>> patch\n")
    file.write_text(f"{text[:start]}        return 3 * x\n{text[end:]}")

    project.add_release("0.30.0")
    stand_in.write_wheel(project.wheels, "0.30.0", files=files)
    command = ["refresh", "scale", "--release", "0.30.0", "--tree", str(home)]
    out, _ = ran(capsys, *command)
    assert out == "overlay/patches/scale/0.30.0.patch: written\n"
    assert ran(capsys, *command)[0] == "overlay/patches/scale/0.30.0.patch: unchanged\n"


def test_port_of_what_applies_is_0(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = ran(capsys, "port", "0.25.0", "0.26.0")
    assert out.count(" applies") == 3


def test_refresh_writes_every_variant(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "refresh")
    out, _ = ran(capsys, "refresh")
    assert out.splitlines() == [
        f"overlay/patches/{name}.patch: unchanged"
        for name in ("sqrt/0.25.0", "scale/0.25.0", "scale/0.29.0", "head/0.25.0")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no such patch: nothing; the queue has sqrt, scale, head"),
        (["--tree", "."], "--tree goes with one ID and --release"),
        (["sqrt", "--tree", "."], "--tree goes with one ID and --release"),
        (["sqrt", "scale", "--release", "0.29.0", "--tree", "."], "--tree goes with one ID"),
        (["sqrt", "--release", "next"], "'next' is neither on disk nor a release"),
    ],
)
def test_refresh_refuses_what_makes_no_sense(
    project: Project, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, "refresh", *arguments)


# lint


@pytest.fixture
def fresh(project: Project, capsys: pytest.CaptureFixture[str]) -> Project:
    """Give a project whose generated pages are fresh."""
    (project.root / "README.md").write_text("<!-- table -->\n<!-- end of table -->\n")
    ran(capsys, "docs")
    return project


def test_docs_writes_and_removes_pages(fresh: Project, capsys: pytest.CaptureFixture[str]) -> None:
    pages = fresh.root / "docs" / "patches"
    assert sorted(path.stem for path in pages.iterdir()) == sorted(PATCHES)
    assert "| sqrt |" in (fresh.root / "README.md").read_text().replace("[", "").replace(
        "](docs/patches/sqrt.md)", ""
    )
    assert ran(capsys, "docs")[0] == ""
    (pages / "old.md").write_text("")
    (pages / "sqrt.md").write_text("")
    assert "docs/patches/old.md is not fresh" in ran(capsys, "lint", status=1)[1]
    assert ran(capsys, "docs")[0] == "docs/patches/sqrt.md: written\ndocs/patches/old.md: removed\n"
    ran(capsys, "lint")


def test_lint_of_a_sound_queue(fresh: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "lint")[0] == "3 patches, 4 diffs, 3 releases\n"


def test_lint_tells_stale_and_missing_locks(
    fresh: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project = fresh
    file = project.overlay / "patches" / "head" / "0.25.0.patch"
    file.write_text(file.read_text().replace("float(x)", "int(x)"))
    (project.overlay / "locks" / "0.29.0.json").unlink()
    _, err = ran(capsys, "lint", status=1)
    assert "head on 0.25.0: changed since it was locked: python -m build_hooks lock 0.25.0" in err
    assert "sqrt on 0.29.0: lock 0.29.0 is missing" in err


def test_lint_tells_every_problem_of_the_queue(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.write_patch(project.overlay, "sqrt", {"0.25.0": "x"}, title="", why=None)
    message = refused(capsys, "lint")
    assert message.startswith("error: The patch queue has 3 problems:\n")
    assert "\n  patches/sqrt/patch.toml: title: is empty\n" in message
    assert "\n  patches/sqrt/0.25.0.patch: line 1: the last line has no line end\n" in message


def test_every_command_refuses_a_broken_queue(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.overlay / "series.toml").write_text("releases = [")
    for command in (["lint"], ["status"], ["lock"], ["refresh"], ["port", "0.25.0", "0.26.0"]):
        assert "series.toml: not TOML" in refused(capsys, *command)


# The interpreter.


@pytest.mark.parametrize("script", ["build_hooks/__main__.py", "build_hooks/hatch.py"])
def test_an_older_python_is_told_what_it_takes(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    monkeypatch.setattr(sys, "version", "3.9.18 (main)")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script))
    assert str(ended.value) == ("error: vllm-nemo is built with Python 3.10 or newer, not 3.9.18")


def test_the_wheel_that_is_built_is_a_wheel(
    tree: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    printed, _ = ran(capfd, "build", "0.29.0", "--out", str(tree.root))  # type: ignore[arg-type]
    with zipfile.ZipFile(printed.strip()) as archive:
        assert archive.testzip() is None
