"""Container images without a daemon: buildah in a store of its own, and what an image holds.

Needs Linux, root, buildah and util-linux. Works where nothing but plain directories is to be had:
chroot isolation, the vfs driver. That one copies the whole tree for every layer and container, so
names are short-lived here and bases are made in one layer.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Mounts a root read-only for everyone, with a private /tmp and nothing else to write to, and runs
# a command in it as a user that has no name there, as OpenShift does. Arguments: the root, the
# directory to show at /mnt, the user, the command.
_READ_ONLY = """\
set -eu
root=$1 shown=$2 user=$3
shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind -o ro "$shown" "$root/mnt"
mount -o remount,bind,ro "$root/mnt"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" --groups= "$root" "$@"
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, and what it printed on both streams."""

    status: int
    output: str


@dataclass(frozen=True)
class Layer:
    """A layer: its entries, and how many bytes it has as a tar and gzipped at level 6."""

    entries: tuple[tarfile.TarInfo, ...]
    size: int
    compressed: int


class Store:
    """Images and containers below one directory; the machine's own are left alone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)

    def run(self, *words: str | Path, network: bool = True) -> Ended:
        """Run a buildah command; without network, even chroot isolation has none."""
        where: list[str | Path] = ["--root", self.home / "graph", "--runroot", self.home / "run"]
        command: list[str | Path] = ["buildah", "--storage-driver", "vfs", *where, *words]
        if not network:
            command = ["unshare", "--net", *command]
        return run(command)

    def must(self, *words: str | Path) -> str:
        """Run a buildah command that has to succeed; return the last line that it prints."""
        ended = self.run(*words)
        if ended.status != 0:
            raise SystemExit(f"buildah {' '.join(map(str, words))}:\n{ended.output[-4000:]}")
        return ended.output.strip().rpartition("\n")[2]

    def has(self, image: str) -> bool:
        """Whether the store has an image of this name."""
        return self.run("inspect", "--type", "image", image).status == 0

    def build(self, context: Path, *options: str, network: bool = True) -> Ended:
        """Build a Dockerfile. No container of the store may be in use, as all are removed."""
        fixed = ["build", "--isolation", "chroot", "--pull=never", *options]
        ended = self.run(*fixed, context, network=network)
        # A build that fails leaves a copy of the whole tree behind.
        self.run("rm", "--all")
        return ended

    def configuration(self, image: str) -> dict[str, Any]:
        """Return an image's OCI configuration."""
        found: dict[str, Any] = json.loads(self.run("inspect", "--type", "image", image).output)
        configuration: dict[str, Any] = found["OCIv1"]
        return configuration

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[Container]:
        """Give a container of an image, and remove it afterwards."""
        name = self.must("from", "--pull-never", image)
        try:
            yield Container(self, name, Path(self.must("mount", name)))
        finally:
            self.run("rm", name)

    def last_layer(self, image: str) -> tuple[list[str], Layer]:
        """Return the digests of all layers, computed from their bytes, and the last layer."""
        saved = self.home / "saved.tar"
        # The one form of an image whose layers are not compressed.
        self.must("push", image, f"docker-archive:{saved}:saved")
        with tarfile.open(saved) as archive:
            manifest = json.load(_member(archive, "manifest.json"))[0]
            digests = [_sha256(_member(archive, layer)) for layer in manifest["Layers"]]
            data = _member(archive, manifest["Layers"][-1]).read()
        saved.unlink()
        with tarfile.open(fileobj=io.BytesIO(data)) as layer:
            entries = tuple(layer)
        return digests, Layer(entries, len(data), len(gzip.compress(data, 6)))

    def tidy(self) -> None:
        """Remove the containers and directories that a run has left that was broken off."""
        self.run("rm", "--all")
        shutil.rmtree(self.home / "debian", ignore_errors=True)
        (self.home / "saved.tar").unlink(missing_ok=True)

    def remove(self, *images: str) -> None:
        """Remove images, and what no image needs any more."""
        for image in images:
            self.run("rmi", "--force", image)
        self.run("rmi", "--prune")

    def clean(self) -> None:
        """Remove everything."""
        self.run("rm", "--all")
        self.run("rmi", "--all", "--force")
        shutil.rmtree(self.home)


@dataclass(frozen=True)
class Container:
    """A container: its name and its root on this machine."""

    store: Store
    name: str
    root: Path

    def run(
        self, *words: str | Path, volumes: Sequence[str] = (), env: Sequence[str] = ()
    ) -> Ended:
        """Run a command as root, the way buildah does, with this machine's network."""
        shown = [word for volume in volumes for word in ("--volume", volume)]
        environment = [word for pair in env for word in ("--env", pair)]
        fixed = ["run", "--isolation", "chroot", *shown, *environment, self.name, "--"]
        return self.store.run(*fixed, *words)

    def run_read_only(self, *words: str, user: str, shown: Path) -> Ended:
        """Run a command as ``uid:gid`` on a root that nobody can write to, ``shown`` at /mnt."""
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return run([*namespaces, "sh", "-c", _READ_ONLY, "sh", self.root, shown, user, *words])

    def commit(self, image: str) -> None:
        """Make an image of the container as it is."""
        self.store.must("commit", "--quiet", self.name, image)


def run(command: Sequence[str | Path]) -> Ended:
    """Run a command; return its status and its output."""
    process = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return Ended(process.returncode, process.stdout)


def missing() -> list[str]:
    """Return what this machine lacks, in words."""
    wanted = {
        "buildah": "buildah",
        "debootstrap": "debootstrap",
        "unshare": "util-linux",
        "chroot": "coreutils",
    }
    lacks = [
        f"{tool} (Debian: {package})" for tool, package in wanted.items() if not shutil.which(tool)
    ]
    return lacks if os.geteuid() == 0 else ["root", *lacks]


def edited_files(record: Path) -> tuple[int, list[str]]:
    """Hold an installed distribution against its RECORD.

    Return how many files have a hash there, and the names of those that differ or are missing.
    """
    site = record.parent.parent
    wrong, count = [], 0
    with record.open(encoding="utf-8", newline="") as lines:
        for name, digest, _ in csv.reader(lines):
            if not digest:
                continue
            count += 1
            algorithm, _, expected = digest.partition("=")
            file = site / name
            if not file.is_file() or _record_digest(file, algorithm) != expected:
                wrong.append(name)
    return count, wrong


def _record_digest(file: Path, algorithm: str) -> str:
    digest = hashlib.new(algorithm, file.read_bytes()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(name)
    if stream is None:
        raise ValueError(f"{name} is not a file")
    return stream
