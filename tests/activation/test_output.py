"""What ``vllm-nemo`` says where its answer cannot be written: one line, and a status that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import engine

from tests.support import outputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import installed

ASKED = [
    ["doctor"],
    ["doctor", "--json"],
    ["patches"],
    ["diff"],
    ["verify", "--json"],
    ["--version"],
    ["--help"],
    ["doctor", "--help"],
]


@outputs.every
@pytest.mark.parametrize("arguments", ASKED, ids=" ".join)
def test_an_answer_that_cannot_be_written_is_one_line(
    shared: installed.Interpreter, output: str, arguments: list[str]
) -> None:
    command = [shared.python, "-X", "dev", "-m", "vllm_nemo", *arguments]
    status, lines = outputs.run(command, output, engine.variables(), shared.root)
    reason = outputs.OUTPUTS[output][1]
    if output == "none":
        assert lines == [f"vllm-nemo: standard output {reason}"]
    else:
        assert lines == [f"vllm-nemo: standard output cannot be written: {reason}"]
    assert status == 1


@outputs.every
def test_the_script_and_an_asked_python_do_the_same(
    shared: installed.Interpreter, output: str
) -> None:
    for arguments in (["patches"], ["doctor", "--python", str(shared.python)]):
        command = [shared.python, "-c", _MAIN, *arguments]
        status, lines = outputs.run(command, output, engine.variables(), shared.root)
        assert (status, len(lines)) == (1, 1), lines


_MAIN = "import sys; from vllm_nemo._overlay.cli import main; sys.exit(main())"


def test_a_long_answer_that_stops_half_way(shared: installed.Interpreter) -> None:
    # More than the buffers of Python and of a pipe take.
    code = (
        "import sys; from vllm_nemo._overlay import cli; from vllm_nemo._overlay.commands import "
        "patches; patches._show = lambda manifest: [print('x' * 1000) for _ in range(1000)]\n"
        "sys.exit(cli.main(['patches']))"
    )
    for output in ("full", "closed pipe"):
        command = [shared.python, "-c", code]
        status, lines = outputs.run(command, output, engine.variables(), shared.root)
        assert (status, len(lines)) == (1, 1), lines


def test_an_error_that_is_not_of_the_output_is_not_blamed_on_it(
    shared: installed.Interpreter, tmp_path: Path
) -> None:
    code = (
        "import errno, sys; from vllm_nemo._overlay import cli; from vllm_nemo._overlay.commands "
        "import patches\n"
        "def show(manifest): raise OSError(errno.EIO, 'Input/output error', 'file.py')\n"
        "patches._show = show; sys.exit(cli.main(['patches']))"
    )
    process = shared.run("-c", code)
    assert process.returncode == 1
    assert process.stderr == "vllm-nemo: file.py: Input/output error\n"


def test_a_usage_error_needs_no_output(shared: installed.Interpreter) -> None:
    command = [shared.python, "-m", "vllm_nemo", "nonsense"]
    status, lines = outputs.run(command, "full", engine.variables(), shared.root)
    assert status == 2
    assert lines[0].startswith("usage: vllm-nemo")
