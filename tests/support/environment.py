"""Environments that hold a real vLLM and the built overlay wheel, and scenarios run in them.

A scenario is a script of its own, run by the environment's interpreter in a fresh process. It gets
one JSON object as its only argument and writes one JSON object to the file that
``SCENARIO_RESULT`` names. Nothing else that it, vLLM or vLLM's children print is read, except for
error messages. Its argument ``engine`` holds the arguments of ``LLM`` that engines here share, for
its ``device``; what a test gives as ``engine`` is added to them. It may import from ``tests``, what
needs neither pytest nor the build.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import engine
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a scenario ended: exit status, result (None if it wrote none), what it printed."""

    returncode: int
    result: Any
    output: str

    def ok(self) -> Any:
        """Return the result of a scenario that must have run to its end."""
        assert self.returncode == 0, self.output[-8000:]
        assert self.result is not None, f"no result was written\n{self.output[-8000:]}"
        return self.result


class Environment:
    """One vLLM release with the overlay wheel installed; on a CPU if ci/env made it."""

    def __init__(self, release: str, root: Path, python: Path | None = None) -> None:
        self.release = release
        self.root = root
        self.python = python or root / "bin" / "python"
        # An environment that was given, not made for the tests, is not written to.
        self._scratch = tempfile.TemporaryDirectory(prefix="infos-") if python else None
        # What the test that runs has looked at: True is the overlay, False stock vLLM.
        self.asked: set[bool] = set()
        self._outcomes: dict[str, Outcome] = {}

    def at_least(self, release: str) -> bool:
        """Tell whether this is a vLLM release, or a newer one."""
        return Version(self.release) >= Version(release)

    def scenario(
        self,
        script: Path,
        *,
        overlay: bool,
        env: Mapping[str, str] | None = None,
        timeout: float = 600,
        **arguments: Any,
    ) -> Outcome:
        """Run a scenario; the same call again gives the outcome of the first (engines are slow)."""
        self.asked.add(overlay)
        key = json.dumps([str(script), overlay, dict(env or {}), arguments], sort_keys=True)
        if key not in self._outcomes:
            self._outcomes[key] = self._run(script, overlay, dict(env or {}), timeout, arguments)
        return self._outcomes[key]

    def _run(
        self,
        script: Path,
        overlay: bool,
        extra: dict[str, str],
        timeout: float,
        arguments: dict[str, Any],
    ) -> Outcome:
        device, changes = arguments.get("device", "cpu"), arguments.get("engine", {})
        given = {**arguments, "engine": engine.arguments(device, **changes)}
        with tempfile.TemporaryDirectory(prefix="scenario-") as scratch:
            written = Path(scratch, "result.json")
            shared = self._shared(overlay)
            Path(scratch, "vllm").mkdir()
            Path(scratch, "vllm", "modelinfos").symlink_to(shared / "modelinfos")
            path = [*filter(None, [extra.get("PYTHONPATH")]), str(ROOT)]
            caches = {
                "VLLM_CACHE_ROOT": f"{scratch}/vllm",
                "TORCHINDUCTOR_CACHE_DIR": f"{shared}/inductor",
            }
            process = subprocess.run(
                [self.python, script, json.dumps(given)],
                env={
                    **engine.variables(),
                    **engine.CPU,
                    **(engine.EAGER if self._scratch is None else {}),
                    **caches,
                    **({} if overlay else {"NRL_VLLM_OVERLAY": "off"}),
                    **extra,
                    "PYTHONPATH": os.pathsep.join(path),
                    "SCENARIO_RESULT": str(written),
                },
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
            result = json.loads(written.read_text()) if written.exists() else None
        return Outcome(process.returncode, result, process.stdout)

    def _shared(self, overlay: bool) -> Path:
        """Where vLLM keeps what it found out about model classes, and torch about this CPU.

        Each costs processes of many seconds and is alike for all scenarios, so these share it.
        Stock and every overlay have their own, since vLLM's key is the stock file.
        """
        if self._scratch is not None:
            directory = Path(self._scratch.name, "overlay" if overlay else "stock")
        else:
            (manifest,) = self.root.glob("lib/python*/site-packages/vllm_nemo/manifest.json")
            digest = hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
            directory = self.root / "shared" / (digest if overlay else "stock")
        for name in ("modelinfos", "inductor"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        return directory
