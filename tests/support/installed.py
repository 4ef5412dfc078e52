"""An environment made on the spot: an overlay installed beside a small stand-in for vLLM.

For everything about activation that does not need vLLM itself. The overlay is a wheel that the
project's own hook builds from the stand-in and a small queue, installed by uv; where a test wants
an overlay that no build would give, it is laid out by hand. ``OVERLAY_TEST_PYTHON`` names another
interpreter to make the environments with (default: the one that runs pytest).
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import engine

from build_hooks.diffs.writer import make as make_diff
from tests.support import source, stand_in

OVERLAY = Path(__file__).parent.parent.parent / "overlay"
INTERPRETER = os.environ.get("OVERLAY_TEST_PYTHON", sys.executable)

START_FILES = ("vllm_nemo.pth",)
BASE_VERSION = "0.29.0"
# Not one of the locked releases, and one of its patches is in the base already.
OVERLAY_VERSION = "0.29.0.1+unlocked"

_MODEL = """\
import dataclasses

ORIGIN = {origin!r}
{padding}

@dataclasses.dataclass
class Model:
    layers: int = 2

    def origin(self):
        return ORIGIN


def fail():
    raise ValueError(ORIGIN)


if __name__ == "__main__":
    import vllm.engine

    print(ORIGIN, vllm.engine.ORIGIN, __spec__.name, __file__)
"""

# Every stock file of the stand-in, by its path; some of them are patched below.
STOCK = {
    "vllm/__init__.py": "from vllm._version import __version__\n",
    "vllm/_version.py": f"__version__ = version = {BASE_VERSION!r}\n",
    "vllm/plain.py": "from vllm.models import ORIGIN as SEEN\n\nORIGIN = 'stock'\n",
    "vllm/models.py": _MODEL.format(origin="stock", padding=""),
    "vllm/engine/__init__.py": "ORIGIN = 'stock'\n\nfrom vllm.engine.helper import HELP\n",
    "vllm/engine/core.py": "ORIGIN = 'stock'\n\nfrom vllm.models import Model\n",
    "vllm/engine/helper.py": "HELP = 'stock'\n",
    "vllm/engine/settings.json": '{"threads": 2}\n',
}

# What the overlay serves: the second patch changes a package and adds modules.
SERVED = {
    "vllm/models.py": _MODEL.format(
        origin="served", padding="# a line more than in the stock file\n"
    ),
    "vllm/engine/__init__.py": "ORIGIN = 'served'\n\nfrom vllm.engine.helper import HELP\n",
    "vllm/engine/core.py": "ORIGIN = 'served'\n\nfrom vllm.models import Model\n",
    "vllm/added.py": "from vllm.models import ORIGIN\n",
    "vllm/extra/__init__.py": "ORIGIN = 'served'\n",
    "vllm/extra/inside.py": "from vllm.extra import ORIGIN\n",
}

# The logic of a patch, in the overlay's own package.
HELPERS = {"vllm_nemo/patches/shared/logic.py": "def logic():\n    return 'as built'\n"}

PATCHES = (
    {
        "id": "first",
        "queue": "nemo",
        "title": "Models tell where they come from",
        "outcome": "applied",
        "reason": "",
        "note": "",
        "variant": "0.25.0",
        "switch": "always",
        "files": ["vllm/models.py"],
        "offsets": {"vllm/models.py": [0, 3]},
        "upstream": [
            {"kind": "pull", "ref": "vllm-project/vllm#1", "note": "the same", "fixed-in": "0.30.0"}
        ],
    },
    {
        "id": "second",
        "queue": "nemo",
        "title": "An engine that is served",
        "outcome": "applied",
        "reason": "",
        "note": "",
        "variant": "0.27.0",
        "switch": "NRL_VLLM_SECOND",
        "files": sorted(set(SERVED) - {"vllm/models.py"}),
        "offsets": {},
        "upstream": [],
    },
    {
        "id": "third",
        "queue": "nemo",
        "title": "Upstream has it",
        "outcome": "not-needed",
        "reason": "Fixed upstream in 0.28.0.",
        "note": "",
        "variant": None,
        "switch": "always",
        "files": [],
        "offsets": {},
        "upstream": [],
    },
    {
        "id": "fourth",
        "queue": "nemo",
        "title": "The fork has it",
        "outcome": "present",
        "reason": "Named in NRL_VLLM_PRESENT.",
        "note": "",
        "variant": "0.28.0",
        "switch": "always",
        "files": [],
        "offsets": {},
        "upstream": [],
    },
)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def manifest(
    stock: Mapping[str, str] = STOCK,
    served: Mapping[str, str] = SERVED,
    overlay: str = OVERLAY_VERSION,
    version: str = BASE_VERSION,
    patches: Sequence[Mapping[str, Any]] = PATCHES,
) -> dict[str, Any]:
    """Make the manifest of an overlay that serves these files over those."""
    return {
        "format": 3,
        "overlay": overlay,
        "base": {
            "distribution": "vllm",
            "version": version,
            "release": version,
            "locked": False,
        },
        "queues": [
            {"name": "nemo", "revision": 1, "digest": "0" * 64, "locked": False, "whole": True}
        ],
        "modules": {
            module_name(path): {
                "path": path,
                "package": path.endswith("/__init__.py"),
                "stock": sha256(stock[path]) if path in stock else None,
                "served": sha256(text),
                "patches": ["first" if path == "vllm/models.py" else "second"],
            }
            for path, text in served.items()
        },
        "data": {},
        "files": own_files(),
        "patches": [dict(patch) for patch in patches],
    }


def own_files() -> dict[str, str]:
    """Hash what a wheel has of the source tree itself."""
    package = OVERLAY / "vllm_nemo"
    found = [p for p in package.rglob("*") if p.is_file() and p.suffix in (".py", ".typed", ".dat")]
    found += [OVERLAY / name for name in START_FILES]
    return {p.relative_to(OVERLAY).as_posix(): sha256(p.read_text()) for p in found}


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def write_vllm(
    directory: Path,
    files: Mapping[str, str] = STOCK,
    *,
    version: str = BASE_VERSION,
    distribution: str = "vllm",
) -> None:
    """Install a stand-in for vLLM into a directory."""
    record = stand_in.record(files)
    info = f"{distribution.replace('-', '_')}-{version}.dist-info"
    write(
        directory,
        {
            **files,
            f"{info}/METADATA": metadata(distribution, version),
            f"{info}/RECORD": record,
            f"{info}/top_level.txt": "vllm\n",
        },
    )


_RELEASES = ("0.28.0", BASE_VERSION)
# What the fourth patch is said to change is in the base already.
_PRESENT = ("vllm/engine/helper.py", "HELP = 'stock'\n", "HELP = 'older'\n")


@functools.cache
def wheel() -> Path:
    """Build the overlay of the stand-in, once."""
    scratch = Path(tempfile.mkdtemp(prefix="overlay-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    tree = source.Tree(source.copy_project(scratch), scratch)
    overlay = tree.root / "overlay"
    stand_in.write_series(overlay, [patch["id"] for patch in PATCHES], _RELEASES)
    for patch in PATCHES:
        stand_in.write_patch(overlay, patch["id"], _diffs(patch), **_fields(patch))
    write(overlay, HELPERS)
    write_vllm(scratch / "base")
    out = scratch / "dist"
    tree.build("plain", out, base=scratch / "base", env={"NRL_VLLM_PRESENT": "fourth"})
    (built,) = out.iterdir()
    return built


def _diffs(patch: Mapping[str, Any]) -> dict[str, str]:
    """Write the diff of a patch, under the release that its manifest entry names."""
    if patch["outcome"] == "applied":
        changes = {path: (STOCK.get(path), SERVED[path]) for path in patch["files"]}
    else:
        path, after, before = _PRESENT
        changes = {path: (before, after)}
    text = "".join(
        make_diff(path, None if old is None else old.encode(), new.encode())
        for path, (old, new) in changes.items()
    )
    return {patch["variant"] or "0.28.0": text}


def _fields(patch: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"title": patch["title"], "switch": patch["switch"]}
    fields["upstream"] = patch["upstream"] or None
    if "vllm/models.py" in patch["files"]:
        # It prints where it lies, and looks for nothing there.
        fields["place"] = {"vllm/models.py": []}
    if patch["outcome"] == "not-needed":
        fields |= {"vllm": "<0.29", "not_needed": {BASE_VERSION: patch["reason"]}}
    return fields


def write_overlay(
    directory: Path,
    *,
    served: Mapping[str, str] = SERVED,
    patches: Sequence[Mapping[str, Any]] = PATCHES,
) -> None:
    """Install the overlay into a directory: the wheel, or by hand where something is different."""
    if served is SERVED and patches is PATCHES:
        # Copied, not linked into uv's cache: tests spoil what they install.
        install = ["uv", "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy"]
        subprocess.run([sys.executable, "-m", *install, "--target", directory, wheel()], check=True)
        return
    package = directory / "vllm_nemo"
    shutil.copytree(OVERLAY / "vllm_nemo", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(OVERLAY / "vllm_nemo.pth", directory / "vllm_nemo.pth")
    write(package / "_modules", served)
    (package / "manifest.json").write_text(json.dumps(manifest(STOCK, served, patches=patches)))
    info = f"vllm_nemo-{OVERLAY_VERSION}.dist-info"
    write(
        directory,
        {
            f"{info}/METADATA": metadata("vllm-nemo", OVERLAY_VERSION),
            f"{info}/RECORD": "vllm_nemo/__init__.py,,\n",
            f"{info}/entry_points.txt": (
                "[console_scripts]\nvllm-nemo = vllm_nemo._overlay.cli:main\n\n"
                "[vllm.general_plugins]\nvllm_nemo = vllm_nemo._overlay.guard:check\n"
            ),
        },
    )


@dataclasses.dataclass
class Interpreter:
    """A virtual environment of its own."""

    root: Path
    python: Path
    site_packages: Path

    def run(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with nothing inherited that could change what it does."""
        # The doctor looks at the commands on PATH, which may be those of another vLLM.
        usual = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin"}
        # Wide enough for every path: where a line is broken depends on where the tests are run.
        usual["COLUMNS"] = "2000"
        return subprocess.run(
            [self.python, *arguments],
            env=engine.variables(**(usual | dict(env or {}))),
            cwd=cwd or self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def prints(self, *arguments: str | Path, **options: Any) -> str:
        """Run the interpreter, which must succeed, and return what it printed."""
        process = self.run(*arguments, **options)
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    def fails(self, *arguments: str | Path, **options: Any) -> str:
        """Run the interpreter, which must fail, and return its standard error."""
        process = self.run(*arguments, **options)
        assert process.returncode != 0, process.stdout
        return process.stderr

    def file(self, path: str) -> Path:
        return self.site_packages / path

    def served(self, path: str) -> Path:
        return self.site_packages / "vllm_nemo" / "_modules" / path


def make(root: Path) -> Interpreter:
    """Make an empty virtual environment."""
    subprocess.run([INTERPRETER, "-m", "venv", "--without-pip", root], check=True)
    (site_packages,) = root.glob("lib/python3*/site-packages")
    return Interpreter(root, root / "bin" / "python", site_packages)


def install(root: Path) -> Interpreter:
    """Make a virtual environment with the stand-in and the overlay."""
    environment = make(root)
    write_vllm(environment.site_packages)
    write_overlay(environment.site_packages)
    return environment
