"""A process to measure that stays alive between rounds: this side of the conversation with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "subjects"


class Subject:
    """A script of ``subjects/``, run by some interpreter; it answers one request at a time.

    A context manager that ends the process. What it prints goes to a log. ``under`` is a command
    that runs the interpreter.
    """

    def __init__(
        self,
        python: Path,
        script: str,
        env: Mapping[str, str],
        log: Path,
        *,
        under: Sequence[str] = (),
        **arguments: object,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._script, self._log = script, log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [*under, str(python), str(SCRIPTS / script), json.dumps(arguments)],
                env=dict(env),
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def __enter__(self) -> Subject:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout  # noqa: PT018, S101
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, **request: object) -> None:
        """Ask, without waiting for the answer."""
        assert self._process.stdin  # noqa: S101
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._gone() from error

    def receive(self) -> Any:  # noqa: ANN401 - whatever the script answers
        """Wait for the next answer; the first is what the script says once it is ready."""
        assert self._process.stdout  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        return json.loads(line)

    def ask(self, **request: object) -> Any:  # noqa: ANN401 - as receive
        """Ask and wait for the answer."""
        self.send(**request)
        return self.receive()

    def _gone(self) -> RuntimeError:
        said = self._log.read_text(errors="replace")[-4000:]
        return RuntimeError(f"{self._script} ended:\n{said}\nall of it: {self._log}")
