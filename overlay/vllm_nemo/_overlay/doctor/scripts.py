"""The commands on PATH: which file runs, and which Python its first lines name.

Nothing is run here. Installers write three kinds of first lines: the path of a Python; ``env``,
which looks one up on PATH; and ``sh``, which calls a Python whose path is too long for a first
line, has a blank, or is relative to the script.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes and lines to look at; Linux takes no longer path than this.
_READ = 4096 + 512
_LINES = 4
_PYTHON = re.compile(r"(python|pypy)[\w.-]*")
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# The words of a line by which a shell turns itself into a Python, which reads the same file.
_EXEC = "exec"
_SELF = "$0"


@dataclass(frozen=True)
class Script:
    """A command on PATH.

    Attributes:
        file: Its file, as it was found.
        command: The Python that it starts and that one's options; empty if that cannot be told.
        problem: Why it cannot be told, empty if it can.
    """

    file: Path
    command: tuple[str, ...] = ()
    problem: str = ""

    @property
    def directory(self) -> str:
        """The directory that Python puts on ``sys.path`` for it."""
        return os.path.dirname(os.path.realpath(self.file))  # noqa: PTH120


def on_path(name: str) -> Iterator[Path]:
    """Look a command up in every directory on PATH.

    Args:
        name: The command.

    Yields:
        Every file that could run; the first is what runs.
    """
    for directory in os.get_exec_path():
        # An empty entry is the current directory.
        file = os.path.join(directory or os.curdir, name)  # noqa: PTH118
        if os.path.isfile(file) and os.access(file, os.X_OK):  # noqa: PTH113 (never raises)
            yield Path(file)


def read(file: Path) -> Script:
    """Read which Python a script starts.

    Args:
        file: The script.

    Returns:
        The script.
    """
    try:
        with file.open("rb") as opened:
            head = os.fsdecode(opened.read(_READ))
    except OSError as error:
        return Script(file, problem=f"cannot be read: {error.strerror}")
    if not head.startswith("#!"):
        return Script(file, problem="is no script")
    if zipfile.is_zipfile(file):
        return Script(file, problem="is a zip file, as PEX makes them")
    lines = head[2:].splitlines() or [""]
    program, _, argument = lines[0].strip().replace("\t", " ").partition(" ")
    argument = argument.strip()
    name = _name(program)
    if name == "env":
        command = _env(argument)
    elif name in _SHELLS:
        command = _shell(lines[1:_LINES], file)
    else:
        command = (program, argument) if argument else (program,)
    if not command or not _PYTHON.fullmatch(_name(command[0])):
        return Script(file, problem=f"is a script of {lines[0].strip() or 'nothing'}")
    return Script(file, _found(command))


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def _found(command: tuple[str, ...]) -> tuple[str, ...]:
    """Replace the name of a program by its path, where it is on PATH."""
    program, *options = command
    path = program if "/" in program else shutil.which(program)
    return (path or program, *options)


def _env(argument: str) -> tuple[str, ...]:
    """Return the command that ``env`` starts; Linux gives it one argument, which -S splits."""
    split = re.match(r"-S\s*|--split-string[= ]", argument)
    if split is None:
        return (argument,)
    try:
        return tuple(shlex.split(argument[split.end() :]))
    except ValueError:
        return ()


def _shell(lines: list[str], file: Path) -> tuple[str, ...]:
    """Return the command that a shell turns into; pip, uv and others write it in this way.

    ``'''exec' /path/python "$0" "$@"``
    """
    for line in lines:
        try:
            words = shlex.split(_without_directory(line, file), comments=True)
        except ValueError:
            continue
        if words[:1] != [_EXEC] or _SELF not in words:
            continue
        command = words[1 : words.index(_SELF)]
        if not any("$" in word or "`" in word for word in command):
            return tuple(command)
    return ()


def _without_directory(line: str, file: Path) -> str:
    """Put the script's own directory where a shell would work it out."""
    start = line.find('"$(')
    if start < 0:
        return line
    depth = 0
    for position in range(start + 2, len(line)):
        depth += {"(": 1, ")": -1}.get(line[position], 0)
        if depth == 0:
            break
    substitution, rest = line[start : position + 2], line[position + 2 :]
    if "dirname" not in substitution or _SELF not in substitution:
        return line
    links = "realpath" in substitution or "readlink" in substitution
    directory = Path(os.path.realpath(file) if links else file).parent.absolute()
    return line[:start] + shlex.quote(str(directory)) + rest
