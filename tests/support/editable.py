"""A checkout of a small vLLM, installed in editable mode by setuptools itself."""

from __future__ import annotations

import shlex
from importlib import metadata
from pathlib import Path

from tests.support import installers, stand_in

# Of a release's sources, under the version of a development build.
RELEASE = "0.29.0"
VERSION = "0.29.1.dev3+gabc"
# The default is a finder that setuptools writes; "strict" makes a tree of links to the files.
MODES = ("default", "compat", "strict")

_PYPROJECT = f"""\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-vllm"
version = "{VERSION}"

[tool.setuptools.packages.find]
include = ["vllm*"]

[tool.setuptools.package-data]
vllm = ["*.json"]
"""


def write_checkout(directory: Path) -> Path:
    """Write the sources, and what setuptools reads."""
    files = stand_in.sources(RELEASE, plain="SEEN = 1\n", _version=f"version = {VERSION!r}\n")
    return stand_in.write(directory, {**files, "pyproject.toml": _PYPROJECT})


def install(env: installers.Environment, checkout: Path, mode: str) -> None:
    """Install a checkout in one of setuptools' modes."""
    backend = _backend(env.interpreter.root.parent / "backend")
    setting = "" if mode == "default" else f"-C editable_mode={mode}"
    arguments = f"install --no-deps --no-build-isolation {setting} -e {shlex.quote(str(checkout))}"
    env.does(f"PYTHONPATH={shlex.quote(str(backend))} {env.pip} {arguments}")


def _backend(directory: Path) -> Path:
    """Make a directory with the tests' own setuptools, for a build that fetches none."""
    distribution = metadata.distribution("setuptools")
    directory.mkdir()
    for name in sorted({file.parts[0] for file in distribution.files or ()} - {".."}):
        (directory / name).symlink_to(Path(str(distribution.locate_file(name))))
    return directory
