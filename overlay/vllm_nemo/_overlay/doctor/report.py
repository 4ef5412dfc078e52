"""What the doctor has found, as data; the command ``doctor`` shows it."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_nemo._overlay.installed import Installed
    from vllm_nemo._overlay.manifest import Manifest, Patch

# The states of a check.
OK = "ok"
WARN = "warn"
FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing that the doctor has looked at.

    Attributes:
        name: What was looked at.
        state: ``OK``; ``FAIL`` if it does not hold; ``WARN`` if it holds and could be lost.
        detail: What was found and what to do, one line or more.
    """

    name: str
    state: str
    detail: str


@dataclass(frozen=True)
class PatchState:
    """A patch in this interpreter.

    Attributes:
        patch: The patch.
        state: A word of ``outcomes`` for what an interpreter runs.
        switch: "always", or the variable that turns the patch on, with its value.
    """

    patch: Patch
    state: str
    switch: str


@dataclass
class Report:
    """Everything that the doctor has found about this interpreter.

    Attributes:
        checks: What was looked at, in the order in which it is shown.
        patches: The patches, empty if there is no overlay.
        manifest: The overlay's manifest, None if there is none.
        directory: The directory of the ``vllm`` package, None if vLLM is not installed.
        installed: The vLLM in it.
        active: Whether this interpreter serves the overlay's modules: the overlay is not switched
            off, its finder is there, and vLLM is the one that it was built for.
        python: The path of the interpreter.
    """

    checks: list[Check] = field(default_factory=list)
    patches: tuple[PatchState, ...] = ()
    manifest: Manifest | None = None
    directory: Path | None = None
    installed: Installed | None = None
    active: bool = False
    python: str = sys.executable

    @property
    def holds(self) -> bool:
        """Whether every check holds; a warning does not count."""
        return all(check.state != FAIL for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        manifest = self.manifest
        return {
            "holds": self.holds,
            "active": self.active,
            "python": self.python,
            "overlay": manifest and manifest.overlay,
            "manifest": manifest and _sha256(manifest.directory / "manifest.json"),
            "base": manifest
            and {
                "distribution": manifest.base.distribution,
                "version": manifest.base.version,
                "locked": manifest.base.locked,
            },
            "vllm": self.installed
            and {
                "directory": str(self.directory),
                "version": self.installed.version,
                "distributions": [f"{name} {version}" for name, version in self.installed.owners],
            },
            "checks": [vars(check) for check in self.checks],
            "patches": [
                {"id": item.patch.id, "state": item.state, "switch": item.switch}
                for item in self.patches
            ],
        }


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
