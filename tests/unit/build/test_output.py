"""What the maintainer's commands say where their answer cannot be written, and with no command."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import engine

from build_hooks.outputs import report
from tests.support import outputs, source
from tests.support.project import content

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay

COMMANDS = ["status", "status --json", "show radio-layerscale 0.29.0", "lint", "--help"]


@outputs.every
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_cannot_be_written_is_one_line(output: str, command: str) -> None:
    words = [sys.executable, "-X", "dev", "-m", "build_hooks", *command.split()]
    status, lines = outputs.run(words, output, engine.variables(), source.ROOT)
    reason = outputs.OUTPUTS[output][1]
    wanted = "is closed" if output == "none" else f"cannot be written: {reason}"
    # `show` tells on standard error which variants a diff is from.
    told = [line for line in lines if ": from " not in line]
    assert (status, told) == (1, [f"error: standard output {wanted}"])


def _run(*arguments: str, **env: str) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-m", "build_hooks", *arguments],
        env=engine.variables(**env),
        cwd=source.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == ""
    return process.returncode, process.stderr


def test_without_a_command_they_are_listed() -> None:
    status, text = _run()
    assert status == 2
    for name in ("build", "lock", "status", "port", "refresh", "show", "import", "lint", "docs"):
        assert f"\n    {name} " in text


def test_a_wrong_argument_is_not_blamed_on_a_variable() -> None:
    wanted = "'foo' is none of: 'installed', a release such as 0.29.0, a wheel file, a directory"
    for arguments in (["build", "foo"], ["status", "--against", "foo"], ["port", "foo", "0.29.0"]):
        status, text = _run(*arguments)
        assert status == 1
        assert text.startswith(f"error: {wanted}")
        assert "NRL_VLLM_BASE" not in text
    # Where it is the variable, that is said.
    status, text = _run("build", NRL_VLLM_BASE="foo")
    assert (status, text.startswith(f"error: NRL_VLLM_BASE: {wanted}")) == (1, True)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_what_a_build_tells_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, made: Overlay, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = report.render(content(made, "0.29.0.1+unlocked." + "abcdefgh" * 4))
    assert 0.7 * width < max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [40, 100])
def test_the_table_of_releases_fits_the_terminal(width: int) -> None:
    command = [sys.executable, "-m", "build_hooks", "status"]
    env = engine.variables(COLUMNS=str(width))
    text = subprocess.check_output(command, env=env, cwd=source.ROOT, text=True)
    assert 0.7 * width < max(len(line) for line in text.splitlines()) <= width
