"""Makes small Debian systems in directories, and runs commands in them.

For Pythons that this machine does not have. A root holds one Python; the project is seen in it
at the path that it has outside, so an environment below build/ has one path in and out.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness import tools
from harness.tools import ROOT, run

if TYPE_CHECKING:
    from collections.abc import Iterator

# The Debian release that has a Python; sid has the others.
_SUITES = {"3.11": "bookworm", "3.13": "trixie"}
_NEWEST = "sid"
# What the tests call beside Python.
_PACKAGES = ("ca-certificates", "git")
# What a root takes from this machine to reach the package index as this machine does.
_SETTINGS = ("/etc/hosts", "/etc/resolv.conf", "/etc/ssl", "/etc/pip.conf", "/etc/xdg/pip")
# Mounts end with the command: they are made in a mount namespace of its own. Arguments: the root,
# the project, the number of further paths, these paths, the command.
_ENTER = """\
set -eu
root=$1 project=$2 count=$3
shift 3
mount --rbind "$root" "$root"  # what runs there may make mounts of its own: "/" has to be one
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$project"
mount --bind "$project" "$root$project"
while [ "$count" -gt 0 ]; do
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; touch "$root$1"; fi
    mount --bind "$1" "$root$1"
    shift
    count=$((count - 1))
done
exec chroot "$root" /bin/sh -c 'cd "$1"; shift; exec "$@"' sh "$project" "$@"
"""


def missing() -> str | None:
    """Say what this machine lacks to make a root, or to enter one; None if it lacks nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a Debian root needs Linux and root"
    programs = [name for name in ("debootstrap", "unshare", "chroot") if not shutil.which(name)]
    return f"a Debian root needs {', '.join(programs)}" if programs else None


def make(version: str, root: Path) -> None:
    """Make a root with one Python, unless it is there.

    Args:
        version: The Python, "3.14".
        root: The directory to make it in.

    Raises:
        SystemExit: if debootstrap fails.
    """
    suite = _SUITES.get(version, _NEWEST)
    content = [suite, f"python{version}-venv", *_PACKAGES]
    if tools.is_complete(root, content):
        return
    print(f"Python {version}: making a root with Debian's {suite}", file=sys.stderr)
    shutil.rmtree(root, ignore_errors=True)
    include = f"--include={','.join(content[1:])}"
    # Its own messages are some hundred lines, of which the last tells what failed.
    run(["debootstrap", "--variant=minbase", include, suite, root], read=True)
    tools.complete(root, content)


def enter(root: Path) -> list[str | Path]:
    """Return the words in front of a command that run it in a root, in the project's directory."""
    paths = list(_settings())
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-c", _ENTER, "sh", root, ROOT, str(len(paths)), *paths]


def _settings() -> Iterator[str]:
    for path in (*_SETTINGS, str(Path("~/.config/pip").expanduser())):
        if Path(path).exists():
            yield path
