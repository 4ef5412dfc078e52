"""Which Python the first lines of a script name; scripts of real installers: tests/hostile."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import pytest
from vllm_nemo._overlay.doctor import others, scripts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("#!/opt/env/bin/python3.12\n", ("/opt/env/bin/python3.12",)),
        ("#! /opt/env/bin/python -E -s \n", ("/opt/env/bin/python", "-E -s")),
        ("#!/opt/env/bin/pypy3.11\n", ("/opt/env/bin/pypy3.11",)),
        ("#!/usr/bin/env -S /opt/python -I -B\n", ("/opt/python", "-I", "-B")),
        ("#!/usr/bin/env /opt/python\n", ("/opt/python",)),
        ("#!/bin/sh\n'''exec' /opt/python \"$0\" \"$@\"\n' '''\n", ("/opt/python",)),
        ("#!/bin/sh\n'''exec' '/a b/python' -E \"$0\" \"$@\"\n' '''\n", ("/a b/python", "-E")),
        ('#!/bin/bash\n"exec" "/opt/python" "$0" "$@"\n', ("/opt/python",)),
        ("#!/bin/sh\n''''exec /opt/python -- \"$0\" # '''\n", ("/opt/python", "--")),
        # Not Python, or not to be told.
        ("#!/usr/bin/perl\n", ()),
        ("#!/usr/bin/env -S A=1 python\n", ()),
        ("#!/bin/sh\nexec python3 -m vllm\n", ()),
        ("#!/bin/sh\n'''exec' \"$PYTHON\" \"$0\"\n", ()),
        ("#!\n", ()),
        ("#!/bin/sh", ()),
        ("#!/opt/pythonic/tool\n", ()),
    ],
)
def test_the_python_of_a_script(tmp_path: Path, text: str, command: tuple[str, ...]) -> None:
    file = tmp_path / "vllm"
    file.write_text(text)
    script = scripts.read(file)
    assert script.command == command
    assert bool(script.problem) is not bool(command)


@pytest.mark.parametrize(
    "line",
    [
        # uv's, now and before.
        '"$(dirname -- "$(realpath -- "$0")")"/\'python\' "$0" "$@"',
        '"$(CDPATH= cd -- "$(dirname -- "$0")" && echo "$PWD")"/\'python\' "$0" "$@"',
    ],
)
def test_the_directory_of_a_relocatable_script(tmp_path: Path, line: str) -> None:
    (tmp_path / "it's here").mkdir()
    file = tmp_path / "it's here" / "vllm"
    file.write_text(f"#!/bin/sh\n'''exec' {line}\n' '''\n")
    assert scripts.read(file).command == (str(file.parent / "python"),)


def test_the_first_file_on_path_that_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mode in (("a", 0o644), ("b", 0o755), ("d", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vllm").touch(mode)
    (tmp_path / "c" / "vllm").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "d")
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/nowhere:{tmp_path}/c:{tmp_path}/b:")
    assert list(map(str, scripts.on_path("vllm"))) == [f"{tmp_path}/b/vllm", "vllm"]


def test_two_pythons_of_one_prefix_are_two() -> None:
    # As /usr/bin/python3.11 and /usr/bin/python3.13, with packages of their own.
    answer = others.ask([sys.executable])
    assert isinstance(answer, others.Answer)
    assert answer.here
    assert not dataclasses.replace(answer, kind="cpython-399 ").here
    assert not dataclasses.replace(answer, prefix="/usr/other").here
