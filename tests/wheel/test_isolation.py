"""Front ends that build in an environment of their own: the one that asks is found, or they ask."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.support import installed, source, stand_in

RELEASE = "0.26.0"
ASKS = "cannot see which vLLM the wheel is for. Name it: NRL_VLLM_BASE=0.29.0, or in a uv project:"
PYTHON = source.PYTHON
# Not `python -m uv`, which makes its own environment the active one.
UV = find_uv_bin()


def overlays(site_packages: Path) -> set[str]:
    return {path.name for path in site_packages.glob("vllm*.dist-info")}


def made(out: Path) -> set[str]:
    return {path.name for path in out.glob("*.whl")}


@pytest.fixture
def target(tmp_path: Path) -> installed.Interpreter:
    """Give an environment with a vLLM that is not the newest."""
    environment = installed.make(tmp_path / "target")
    files = stand_in.wheel_files(stand_in.sources(RELEASE), RELEASE)
    stand_in.write(environment.site_packages, files)
    return environment


def test_pip_builds_for_the_environment_that_it_installs_into(
    original: source.Tree, target: installed.Interpreter
) -> None:
    pip = (PYTHON, "-m", "pip", "--python", target.python)
    said = original.run(*pip, "install", "--no-deps", ".", base="").stdout
    expected = {f"vllm-{RELEASE}.dist-info", f"vllm_nemo-{RELEASE}.1.dist-info"}
    assert overlays(target.site_packages) == expected, said


def test_pip_builds_for_the_vllm_of_the_user(original: source.Tree, tmp_path: Path) -> None:
    """What `pip install` without the right to write into site-packages has installed."""
    version = "python{}.{}".format(*sys.version_info)
    files = stand_in.wheel_files(stand_in.sources(RELEASE), RELEASE)
    stand_in.write(tmp_path / "user" / "lib" / version / "site-packages", files)
    # Of a virtual environment only one that shows what lies outside of it has the user's packages.
    shared = tmp_path / "shared"
    original.run(PYTHON, "-m", "venv", "--without-pip", "--system-site-packages", shared)
    pip = (PYTHON, "-m", "pip", "--python", shared / "bin" / "python")
    out = tmp_path / "out"
    wheel = (*pip, "wheel", "--no-deps", "--wheel-dir", out, ".")
    env = {"PYTHONUSERBASE": str(tmp_path / "user")}
    said = original.run(*wheel, base="", env=env).stdout
    assert made(out) == {f"vllm_nemo-{RELEASE}.1-py3-none-any.whl"}, said


def test_build_takes_the_active_environment(
    original: source.Tree, target: installed.Interpreter, tmp_path: Path
) -> None:
    env = {"VIRTUAL_ENV": str(target.root)}
    command = (PYTHON, "-m", "build", "--wheel", "--outdir", tmp_path / "out")
    said = original.run(*command, base="", env=env).stdout
    assert made(tmp_path / "out") == {f"vllm_nemo-{RELEASE}.1-py3-none-any.whl"}, said


@pytest.mark.parametrize(
    ("base", "options"), [("installed", []), ("", ["--env-dir", "{directory}/named"])]
)
def test_build_asks_where_none_is_active(
    original: source.Tree, tmp_path: Path, base: str, options: list[str]
) -> None:
    words = ["--wheel", "--outdir", "{directory}/out", *options]
    arguments = [word.format(directory=tmp_path) for word in words]
    process = original.run(PYTHON, "-m", "build", *arguments, base=base)
    assert process.returncode != 0, process.stdout
    assert ASKS in process.stdout
    assert not made(tmp_path / "out")


@pytest.mark.parametrize("base", ["", "installed"])
def test_uv_build_asks(
    original: source.Tree, target: installed.Interpreter, tmp_path: Path, base: str
) -> None:
    """uv says that its own environment is the active one, whichever was."""
    command = (UV, "build", "--wheel", "--out-dir", tmp_path / "out")
    process = original.run(*command, base=base, env={"VIRTUAL_ENV": str(target.root)})
    assert process.returncode != 0
    assert ASKS in process.stdout
    assert not made(tmp_path / "out")


def test_uv_pip_asks_and_leaves_the_vllm_that_is_there(
    original: source.Tree, target: installed.Interpreter
) -> None:
    command = (UV, "pip", "install", "--python", target.python, ".")
    env = {"VIRTUAL_ENV": str(target.root)}
    process = original.run(*command, base="", env=env)
    assert process.returncode != 0
    assert ASKS in process.stdout
    assert overlays(target.site_packages) == {f"vllm-{RELEASE}.dist-info"}
    # Told which, it builds for that, and for another the next time.
    for release in (RELEASE, "0.29.0"):
        process = original.run(*command, "--no-deps", base=original.wheel(release))
        installed_now = overlays(target.site_packages) - {f"vllm-{RELEASE}.dist-info"}
        assert installed_now == {f"vllm_nemo-{release}.1.dist-info"}, process.stdout


class Consumer:
    """A uv project with a checkout of ours as a path source, and a vLLM of its own."""

    def __init__(self, root: Path, tree: source.Tree) -> None:
        self.root = root
        self.tree = tree

    def write(self, release: str, table: str = "") -> None:
        text = f"""\
[project]
name = "consumer"
version = "1"
requires-python = ">=3.10"
dependencies = ["vllm", "vllm-nemo"]

[tool.uv]
package = false

[tool.uv.sources]
vllm = {{ path = "{self.tree.wheel(release)}" }}
vllm-nemo = {{ path = "{self.tree.root}" }}
{table}"""
        stand_in.write(self.root, {"pyproject.toml": text})

    def sync(self, base: str | Path = "") -> str:
        command = (UV, "sync", "--project", self.root, "--python", PYTHON)
        return self.tree.run(*command, base=base).stdout

    @property
    def site_packages(self) -> Path:
        (found,) = self.root.glob(".venv/lib/python3*/site-packages")
        return found

    def has(self, release: str, said: str) -> bool:
        expected = {f"vllm-{release}.dist-info", f"vllm_nemo-{release}.1.dist-info"}
        assert overlays(self.site_packages) == expected, said
        return True


@pytest.fixture
def consumer(tree: source.Tree, tmp_path: Path) -> Consumer:
    return Consumer(tmp_path / "consumer", tree)


def test_uv_sync_asks_and_takes_the_answer_that_it_told(consumer: Consumer) -> None:
    consumer.write(RELEASE)
    said = consumer.sync()
    assert ASKS in said
    table = next(line.strip() for line in said.splitlines() if "vllm-nemo = {" in line)
    for release in (RELEASE, "0.29.0"):
        answer = table.replace('"0.29.0"', f'"{consumer.tree.wheel(release)}"')
        consumer.write(release, f"[tool.uv.extra-build-variables]\n{answer}\n")
        assert consumer.has(release, consumer.sync())


def test_uv_keeps_no_wheel_that_was_built_for_another_base_or_of_another_queue(
    consumer: Consumer,
) -> None:
    """uv has a wheel of a checkout in its cache until something that it looks at changes."""
    for release in (RELEASE, "0.29.0"):
        consumer.write(release)
        assert consumer.has(release, consumer.sync(consumer.tree.wheel(release)))
    served = consumer.site_packages / "vllm_nemo" / "_modules" / "vllm" / "scaling.py"
    assert served.read_text().startswith("FACTOR = 3\n")
    tree = consumer.tree
    tree.edit("overlay/patches/scale/0.25.0.patch", "FACTOR = 3", "FACTOR = 5")
    (tree.root / "overlay" / "locks" / "0.29.0.json").unlink()
    consumer.sync(tree.wheel())
    assert served.read_text().startswith("FACTOR = 5\n")
    # And it asks again, in place of a wheel for what somebody once said.
    assert ASKS in consumer.sync()
