"""The hatchling hooks: thin; hatchling loads this file alone, the work is done by the package."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("error: vllm-nemo is built with Python 3.10 or newer, not " + sys.version.split()[0])

# hatchling loads hooks by path, so the package around this file is not importable yet.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from build_hooks import build
from build_hooks.errors import BuildError, refusal
from build_hooks.outputs import report, wheel
from build_hooks.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def _message_alone() -> Iterator[None]:
    """Let a front end show the message of a failed build, and no traceback above it."""
    try:
        yield
    except BuildError as error:
        raise SystemExit(f"error: {error}") from error
    except OSError as error:
        raise SystemExit(f"error: {refusal(error)}") from error


class OverlayMetadata(MetadataHookInterface):
    """Sets version, dependency and entry points; refuses to build without the build hook."""

    @_message_alone()
    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dynamic fields from the base."""
        # Metadata hooks run where build hooks are switched off; a wheel without its overlay would
        # look like one that has it.
        if os.environ.get("HATCH_BUILD_NO_HOOKS", "").lower() in ("true", "1"):
            raise BuildError("HATCH_BUILD_NO_HOOKS would give a wheel without an overlay; unset it")
        identity = build.identify(Project(Path(self.root)), build.Settings.from_environment())
        metadata["version"] = identity.version
        metadata["dependencies"] = [identity.requirement, *identity.requires]
        metadata["entry-points"] = {
            "vllm.general_plugins": {"vllm_nemo": "vllm_nemo._overlay.guard:check"},
            "pyinstaller40": {"hook-dirs": "vllm_nemo._overlay.freezing:hook_directories"},
        }


class OverlayWheel(BuildHookInterface[Any]):
    """Puts every file into the wheel, and checks the finished one."""

    @_message_alone()
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the overlay and hand its files to hatchling."""
        if version == "editable":
            raise BuildError(
                "vllm-nemo cannot be installed in editable mode: what it serves is made at build "
                "time. Build a wheel and install that: pip wheel --no-deps -w dist ."
            )
        content = build.make(Project(Path(self.root)), build.Settings.from_environment())
        # Removed with this object too, should hatchling not come to finalize.
        self._scratch = tempfile.TemporaryDirectory(prefix="vllm-nemo-")
        stage = Path(self._scratch.name)
        self._files = wheel.write(content, stage)
        build_data["force_include"].update({str(path): name for name, path in self._files.items()})
        build_data["sbom_files"].append(str(wheel.write_sbom(content, stage)))
        build_data["tag"] = "py3-none-any"
        self.app.display_info(report.render(content))

    @_message_alone()
    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Leave no wheel that lacks a file or has one too many."""
        self._scratch.cleanup()
        wheel.verify(Path(artifact_path), self._files)
