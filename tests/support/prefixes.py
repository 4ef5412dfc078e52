"""A Python that is no virtual environment, as an image has one: what others can be put on top of.

A virtual environment on top of another one sees nothing of it, so that the layouts of images need
a whole Python. Its binary is copied, because the interpreter finds its prefix by where that lies;
the standard library is linked, but for ``site-packages``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import installed, stand_in

# The commands that vLLM and what it needs bring; each says which Python it runs.
_MAIN = """\
import sys


def main():
    from vllm.models import ORIGIN

    print(sys.prefix, ORIGIN, *sys.argv[1:])


if __name__ == "__main__":
    main()
"""
_SCRIPTS = """\
[console_scripts]
vllm = vllm.cli:main
ray = vllm.cli:main
torchrun = vllm.cli:main
"""


def python(root: Path) -> installed.Interpreter:
    """Make a Python with an empty ``site-packages``, and a prefix of its own."""
    made_of = Path(
        subprocess.check_output(
            [installed.INTERPRETER, "-c", "import sys; print(sys.base_prefix)"], text=True
        ).strip()
    )
    (library,) = {path.parent for path in made_of.glob("lib/python3.*/os.py")}
    version = library.name
    copy = root / "lib" / version
    (root / "bin").mkdir(parents=True)
    (copy / "site-packages").mkdir(parents=True)
    for path in library.iterdir():
        if path.name not in {"site-packages", "__pycache__"}:
            (copy / path.name).symlink_to(path)
    for path in (made_of / "lib").glob("libpython*"):
        (root / "lib" / path.name).symlink_to(path)
    shutil.copy(made_of / "bin" / version, root / "bin" / version)
    for name in ("python", "python3"):
        (root / "bin" / name).symlink_to(version)
    return installed.Interpreter(root, root / "bin" / "python", copy / "site-packages")


def on_top(base: installed.Interpreter, root: Path) -> installed.Interpreter:
    """Make a virtual environment that sees what a Python has installed."""
    venv = ["-m", "venv", "--without-pip", "--system-site-packages"]
    subprocess.run([base.python, *venv, root], check=True)
    (site_packages,) = root.glob("lib/python3*/site-packages")
    return installed.Interpreter(root, root / "bin" / "python", site_packages)


def vllm_wheel(directory: Path) -> Path:
    """Write a wheel of the stand-in that the overlay is for, with vLLM's commands."""
    info = f"vllm-{installed.BASE_VERSION}.dist-info"
    files = installed.STOCK | {"vllm/cli.py": _MAIN, f"{info}/entry_points.txt": _SCRIPTS}
    return stand_in.write_wheel(directory, installed.BASE_VERSION, files=files)


def install(environment: installed.Interpreter, *wheels: Path) -> None:
    """Install wheels by uv, with their commands."""
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--no-config", "--offline"]
    where = ["--link-mode", "copy", "--break-system-packages", "--python", environment.python]
    subprocess.run([sys.executable, "-m", *command, *where, *wheels], check=True)
