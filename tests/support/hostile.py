"""Places that are hard to live in: other users, read-only and full file systems, and their proof.

Mounts are made in a mount namespace of the one command that needs them, so that nothing else sees
them and nothing is left behind.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harness import engine

# Nobody, on every Linux.
NOBODY = 65534


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what could change what a test shows."""
    return engine.variables(*engine.INSTALLERS, **(extra or {}))


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing inherited that could change what it does."""
    return subprocess.run(
        command,
        env=environment(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def prints(command: Sequence[str | Path], **options: object) -> str:
    """Run a command, which must succeed, and return what it printed."""
    process = run(command, **options)  # type: ignore[arg-type]
    assert process.returncode == 0, process.stderr + process.stdout
    return process.stdout.strip()


@functools.cache
def _refusal_of_mounts() -> str | None:
    """Return why this machine gives no mount namespace, None where it does."""
    try:
        script = "mount -t tmpfs none /mnt && mount -o remount,bind,ro /"
        process = run(["unshare", "--mount", "sh", "-c", script])
    except FileNotFoundError as error:
        return f"there is no {error.filename} (util-linux)"
    return process.stderr.strip() if process.returncode else None


def mounts(script: str) -> list[str]:
    """Return what to put before a command for it to see what a shell script mounts."""
    refusal = _refusal_of_mounts()
    if refusal is not None:
        pytest.skip(f"no mounts can be made here: {refusal}")
    return ["unshare", "--mount", "sh", "-euc", f'{script}\nexec "$@"', "sh"]


def read_only(*paths: Path) -> str:
    """Write the script that makes the root file system, and those of some paths, read-only."""
    points = dict.fromkeys(["/", *(_mount_point(path) for path in paths)])
    return "\n".join(f"mount -o remount,bind,ro {shlex.quote(point)}" for point in points)


def _mount_point(path: Path) -> str:
    return prints(["stat", "--format", "%m", path])


def nobody(user: int = NOBODY) -> list[str]:
    """Return what to put before a command for a user who owns nothing and may write nothing.

    It may read everything, since on a machine for tests the interpreter itself often lies below
    the home of root.
    """
    if os.geteuid() != 0:
        pytest.skip("not root: no other user's files can be made")
    capability = "dac_read_search"
    return [
        *("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
        *(f"--inh-caps=-all,+{capability}", f"--ambient-caps=-all,+{capability}"),
        f"--bounding-set=-all,+{capability}",
    ]


def without_privileges() -> list[str]:
    """Return what to put before a command for it to read and write only what modes allow.

    root stays the owner of its files, and is held to their modes as any owner is.
    """
    if os.geteuid() != 0:
        return []
    capabilities = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"]


def contents(directory: Path) -> dict[str, str]:
    """Return what lies below a directory: the hash of each file, the target of each link."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def recorded(site_packages: Path, distribution: str) -> dict[str, str]:
    """Return the hash of every file that a distribution's RECORD lists, as it is on disk now."""
    (record,) = site_packages.glob(f"{distribution}-*.dist-info/RECORD")
    names = [row[0] for row in csv.reader(record.read_text().splitlines())]
    return {name: hashlib.sha256((site_packages / name).read_bytes()).hexdigest() for name in names}
