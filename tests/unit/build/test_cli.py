"""The maintainer's commands: what they print, what they write, how they end."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from build_hooks import cli
from tests.support import index, source, stand_in

if TYPE_CHECKING:
    from tests.support.project import Small

ROOT = source.ROOT


class Commands:
    """Runs commands on a project."""

    def __init__(self, project: Small, capture: pytest.CaptureFixture[str]) -> None:
        self.project = project
        self._capture = capture

    def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """Return what a command printed: its output and its errors."""
        self._capture.readouterr()
        assert cli.main(arguments, self.project) == status
        return self._capture.readouterr()

    def refused(self, *arguments: str) -> str:
        out, err = self(*arguments, status=1)
        assert out == ""
        assert err.startswith("error: ")
        return err


@pytest.fixture
def run(project: Small, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(project, capfd)


@pytest.fixture
def buildable(project: Small) -> Small:
    """Make the project one that hatchling can build."""
    source.copy_package(project.root)
    for name in ("pyproject.toml", "README.md"):
        (project.root / name).write_bytes((ROOT / name).read_bytes())
    (project.root / "build_hooks").symlink_to(ROOT / "build_hooks")
    return project


def test_no_sense_ends_with_2() -> None:
    for arguments in ([], ["bake"], ["status", "--json", "--markdown"], ["port", "0.29.0"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 2


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for command in ("build", "lock", "status", "port", "refresh", "show", "lint", "docs"):
        assert f"\n    {command}" in out
    assert "Exit status: 0" in out


# build


def test_build_prints_the_wheel_and_reports(run: Commands, buildable: Small) -> None:
    out = buildable.root / "out"
    printed, told = run("build", "0.26.0", "--out", str(out))
    wheel = out / "vllm_nemo-0.26.0.1-py3-none-any.whl"
    assert printed == f"{wheel}\n"
    assert list(out.iterdir()) == [wheel]
    assert told.splitlines()[:7] == [
        "vllm-nemo 0.26.0.1 for vLLM 0.26.0 (vllm-0.26.0-py3-none-any.whl)",
        "",
        "patch  outcome  files",
        "-----  -------  -----",
        "sqrt   applied  2",
        "    vllm/engine/__init__.py: 0",
        "    vllm/models.py: +4",
    ]
    assert "built in " in told


def test_build_of_all_releases(run: Commands, buildable: Small) -> None:
    out = buildable.root / "out"
    printed, told = run("build", "--all", "--out", str(out))
    assert sorted(out.iterdir()) == [Path(line) for line in printed.splitlines()]
    assert [path.name for path in sorted(out.iterdir())] == [
        f"vllm_nemo-{release}.1-py3-none-any.whl" for release in stand_in.RELEASES
    ]
    assert "    vllm/scaling.py: 0\n    Read the new comment.\n" in told
    assert "head   not-needed\n    Upstream returns a float.\n" in told


def test_build_takes_the_environments_base_and_wheels_from_a_directory(
    run: Commands, buildable: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRL_VLLM_BASE", "0.25.0")
    monkeypatch.chdir(buildable.root)
    printed, _ = run("build")
    assert printed == f"{buildable.root}/dist/vllm_nemo-0.25.0.1-py3-none-any.whl\n"
    elsewhere = buildable.root / "elsewhere"
    buildable.wheels.rename(elsewhere)
    printed, _ = run("build", "0.26.0", "--wheels", str(elsewhere))
    assert printed == f"{buildable.root}/dist/vllm_nemo-0.26.0.1-py3-none-any.whl\n"


def test_a_failed_build_ends_with_1_and_leaves_nothing(run: Commands, buildable: Small) -> None:
    out = buildable.root / "out"
    said = run.refused("build", "newest", "--out", str(out))
    assert said.startswith("error: 'newest' is none of: 'installed', a release such as 0.29.0")
    assert not out.exists()
    buildable.edit_lock("0.26.0", served={})
    with pytest.raises(SystemExit, match="The build of vLLM"):
        cli.main(["build", "0.26.0", "--out", str(out)], buildable)
    assert not out.exists() or not list(out.iterdir())


def test_an_output_that_is_no_directory_is_told(run: Commands, buildable: Small) -> None:
    out = stand_in.write(buildable.root, {"file": ""}) / "file"
    for place in (out, out / "below"):
        (line,) = run.refused("build", "0.26.0", "--out", str(place)).splitlines()
        assert line.startswith(f"error: {place}: ")


# lock


def test_lock_writes_and_keeps_the_hashes_of_other_wheels(project: Small, run: Commands) -> None:
    locks = project.queue / "locks"
    before = {path.name: path.read_bytes() for path in locks.iterdir()}
    (locks / "0.25.0.json").unlink()
    out, _ = run("lock")
    assert out.splitlines() == [f"{r}: overlay/locks/{r}.json" for r in stand_in.RELEASES]
    assert {path.name: path.read_bytes() for path in locks.iterdir()} == before
    project.edit_lock("0.26.0", wheels={"vllm-0.26.0-cp38-abi3-win_arm64.whl": "1"})
    run("lock", "0.26.0")
    wheels = json.loads((locks / "0.26.0.json").read_text())["wheels"]
    assert list(wheels) == [
        "vllm-0.26.0-cp38-abi3-win_arm64.whl",
        "vllm-0.26.0-py3-none-any.whl",
    ]


def test_lock_replaces_a_malformed_lock(project: Small, run: Commands) -> None:
    """It is what the message about one says to run."""
    file = project.queue / "locks" / "0.26.0.json"
    before = file.read_bytes()
    file.write_text("{")
    assert "run: python -m build_hooks lock 0.26.0" in run.refused("status")
    run("lock", "0.26.0")
    assert file.read_bytes() == before


def test_lock_refuses_what_is_not_supported(run: Commands) -> None:
    message = "error: 0.27.0 is not in series.toml; add it to `releases` first\n"
    assert run.refused("lock", "0.27") == message


# status


def test_status_from_the_locks(project: Small, run: Commands) -> None:
    assert run("status")[0].startswith("patch  0.25.0   0.26.0   0.29.0\n")
    assert run("status", "--markdown")[0].startswith("| patch | 0.25.0 |")
    cells = json.loads(run("status", "--json")[0])["cells"]
    assert len(cells) == 9
    assert set(cells[0]) == {"patch", "base", "outcome", "remark", "level"}


def test_status_is_1_where_a_build_would_fail(project: Small, run: Commands) -> None:
    broken = project.directory("broken", "0.26.0", models="pass\n")
    run("status", "--against", "0.29.0")
    out, _ = run("status", "--json", "--against", "0.29", "--against", str(broken), status=1)
    assert [
        (c["base"], c["outcome"]) for c in json.loads(out)["cells"] if c["patch"] == "sqrt"
    ] == [
        ("0.29.0", "applied"),
        ("0.26.0", "conflict"),
    ]
    (project.queue / "locks" / "0.26.0.json").unlink()
    run("status", status=1)


def test_status_of_the_newest_release(
    project: Small, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "cache")
        for release in ("0.26.0", "0.29.0"):
            served.add(project.wheels / f"vllm-{release}-py3-none-any.whl")
        out, err = run("status", "--newest")
        assert out.startswith("patch  0.29.0\n")
        assert "newer" not in err
        # Its sources are those of the newest that is supported, so that every patch applies.
        for release in ("0.30.0", "0.31.0"):
            served.add(
                stand_in.write_wheel(
                    project.root / "new", release, files=stand_in.sources("0.29.0")
                )
            )
        out, err = run("status", "--newest", status=1)
    assert out.startswith("patch  0.31.0\n")
    assert "conflict" not in out
    assert err.splitlines()[-1] == (
        "newer than every supported release: 0.31.0, 0.30.0; "
        "run: python -m build_hooks port 0.29.0 0.31.0"
    )


def test_status_of_the_newest_release_of_an_empty_index(
    project: Small, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with index.serve() as served:
        index.use(monkeypatch, served.url, project.root / "cache")
        assert "pip found no release of vLLM" in run.refused("status", "--newest")


def test_status_against_what_is_installed(project: Small, run: Commands) -> None:
    assert "no vLLM is installed here" in run.refused("status", "--against", "installed")
    project.install("0.26.0")
    assert "applied" in run("status", "--against", "installed")[0]


# port and refresh


def test_port_and_refresh_carry_a_patch_over(
    project: Small, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    models = stand_in.sources("0.29.0")["vllm/models.py"].replace("return 2 * x", "return x + x")
    files = stand_in.sources("0.29.0") | {"vllm/models.py": models}
    new = stand_in.write_wheel(project.root, "0.30.0", files=files)
    out, err = run("port", "0.29.0", str(new), status=1)
    assert err == "Add 0.30.0 to `releases` in overlay/series.toml before you refresh or lock.\n"
    assert out.splitlines()[0].split() == ["patch", "on", "0.30.0"]
    home = "build/port/0.30.0/scale"
    command = ["refresh", "scale", "--release", "0.30.0", "--tree", home]
    assert f"    python -m build_hooks {' '.join(command)}\n" in out
    file = project.root / home / "vllm" / "models.py"
    text = file.read_text()
    start, end = text.index("<<<<<<<"), text.index(">>>>>>> patch\n") + len(">>>>>>> patch\n")
    file.write_text(f"{text[:start]}        return 3 * x\n{text[end:]}")

    project.add_release("0.30.0")
    stand_in.write_wheel(project.wheels, "0.30.0", files=files)
    out, _ = run(*command)
    assert out == "overlay/patches/scale/0.30.0.patch: written\n"
    assert run(*command)[0] == "overlay/patches/scale/0.30.0.patch: unchanged\n"


def test_port_of_what_applies_is_0(project: Small, run: Commands) -> None:
    out, _ = run("port", "0.25.0", "0.26.0")
    assert out.count(" applied") == 3


def test_refresh_writes_every_variant(project: Small, run: Commands) -> None:
    run("refresh")
    out, _ = run("refresh")
    assert out.splitlines() == [
        f"overlay/patches/{name}.patch: unchanged"
        for name in ("sqrt/0.25.0", "scale/0.25.0", "scale/0.29.0", "head/0.25.0")
    ]


def test_refresh_of_a_chain_leaves_out_what_has_become_a_repetition(
    project: Small, run: Commands
) -> None:
    """One variant at a time: the reader would refuse the queue between them."""
    # Of three variants of a file, the second has a line of context more.
    whole = stand_in.PATCHES["sqrt"]["0.25.0"]
    narrow = whole.partition("--- a/vllm/engine")[0]
    wide = narrow.replace("@@ -6,3 +6,3 @@\n", "@@ -9,4 +9,4 @@\n class Model:\n")
    diffs = {"0.25.0": whole, "0.26.0": wide, "0.29.0": narrow}
    stand_in.write_patch(project.queue, "sqrt", diffs)
    out, _ = run("refresh", "sqrt")
    assert out.splitlines() == [
        "overlay/patches/sqrt/0.25.0.patch: written",
        "overlay/patches/sqrt/0.26.0.patch: removed: older variants say the same",
        "overlay/patches/sqrt/0.29.0.patch: removed: older variants say the same",
    ]
    run("status", "--against", "0.29.0")


def test_show_prints_the_whole_diff_of_a_release(project: Small, run: Commands) -> None:
    out, err = run("show", "scale", "0.29.0")
    (scaling,) = [f for f in project.load().patches[1].variants[0].files if f.added]
    assert out == stand_in.PATCHES["scale"]["0.29.0"] + scaling.text.decode()
    assert err == "vllm/models.py: from 0.29.0.patch\nvllm/scaling.py: from 0.25.0.patch\n"
    assert run.refused("show", "head", "0.29.0") == (
        "error: head is not needed for 0.29.0: Upstream returns a float.\n"
    )
    assert run.refused("show", "sqrt", "0.24.0") == (
        "error: sqrt is not needed for 0.24.0: outside the range >=0.25.0\n"
    )
    assert run.refused("show", "tail", "0.29.0").startswith("error: no such patch: tail; there ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no such patch: nothing; there are sqrt, scale, head"),
        (["--tree", "."], "--tree goes with one ID and --release"),
        (["sqrt", "--tree", "."], "--tree goes with one ID and --release"),
        (["sqrt", "scale", "--release", "0.29.0", "--tree", "."], "--tree goes with one ID"),
        (["sqrt", "--release", "next"], "'next' is no release such as 0.29.0"),
        (["sqrt", "--release", "0.30"], "0.30.0 is not in series.toml; add it to `releases`"),
        (["sqrt", "--release", "0.29", "--tree", "none"], "none contains no vllm/"),
    ],
)
def test_refresh_refuses_what_makes_no_sense(
    project: Small, run: Commands, arguments: list[str], message: str
) -> None:
    assert message in run.refused("refresh", *arguments)


# lint


def test_lint_of_a_sound_queue_and_of_stale_and_missing_locks(
    project: Small, run: Commands
) -> None:
    project.readme.write_text("<!-- table -->\n<!-- end of table -->\n")
    run("docs")
    assert run("lint") == ("3 patches, 4 diffs, 3 releases\n", "")
    project.edit(project.variant("head", "0.25.0"), "float(x)", "int(x)")
    project.lock_file("0.29.0").unlink()
    _, err = run("lint", status=1)
    assert "head on 0.25.0: changed since it was locked: python -m build_hooks lock 0.25.0" in err
    assert "sqrt on 0.29.0: lock 0.29.0 is missing" in err


def test_lint_tells_every_problem_of_the_queue(project: Small, run: Commands) -> None:
    stand_in.write_patch(project.queue, "sqrt", {"0.25.0": "x"}, title="", why=None)
    message = run.refused("lint")
    assert message.startswith("error: The patch queue has 3 problems:\n")
    assert "\n  patches/sqrt/patch.toml: title: is empty\n" in message
    assert "\n  patches/sqrt/0.25.0.patch: line 1: the last line has no line end\n" in message


def test_every_command_refuses_a_broken_queue(project: Small, run: Commands) -> None:
    (project.queue / "series.toml").write_text("releases = [")
    for command in (["lint"], ["status"], ["lock"], ["refresh"], ["port", "0.25.0", "0.26.0"]):
        assert "series.toml: not TOML" in run.refused(*command)


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
