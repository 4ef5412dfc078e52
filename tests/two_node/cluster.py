"""Two nodes of a real Ray cluster on one machine, each in namespaces of its own.

A node is a process that holds a network and a mount namespace; the two networks are joined by a
veth pair and by nothing else, and each node has a /dev/shm of its own, without which vLLM would
take both for one machine. All is gone when the holders end. Needs root and util-linux, iproute2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import engine

from tests.support.environment import ROOT
from tests.support.ray import ENVIRONMENT, PLATFORM

ADDRESSES = ("10.77.0.1", "10.77.0.2")
GCS_PORT = 6379
NEEDED = ("ip", "nsenter", "setpriv", "unshare")
DROP = ("setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service")


def missing() -> str | None:
    """Return what this machine lacks for two nodes, or None."""
    if os.geteuid() != 0:
        return "root"
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking:
        return ", ".join(lacking)
    tried = subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "the right to make namespaces"


class Cluster:
    """Both nodes; ``run`` runs a program on the first."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._python = python
        self.environ = {
            **engine.variables(),
            **engine.CPU,
            **ENVIRONMENT,
            "HOME": str(self.home),
            "PYTHONPATH": f"{PLATFORM}{os.pathsep}{ROOT}",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "VLLM_CACHE_ROOT": f"{self.home}/vllm",
            **environ,
        }
        self._holders: list[subprocess.Popen[bytes]] = []

    def _on(self, node: int, command: Sequence[str | Path]) -> list[str]:
        holder = self._holders[node].pid
        return ["nsenter", "-t", str(holder), "-n", "-m", "--", *map(str, command)]

    def _do(self, node: int, *command: str | Path) -> None:
        environ = {**self.environ, "VLLM_HOST_IP": ADDRESSES[node]}
        done = subprocess.run(
            self._on(node, command),
            env=environ,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"

    def start(self) -> None:
        """Make the namespaces and start Ray on both nodes, one logical GPU each."""
        script = "mount -t tmpfs -o size=2g tmpfs /dev/shm && echo made && exec sleep infinity"
        for _ in ADDRESSES:
            holder = subprocess.Popen(
                ["unshare", "-n", "-m", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            self._holders.append(holder)
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"made\n", "a node could not be made"
        other = str(self._holders[1].pid)
        link = ["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", other]
        self._do(0, "ip", *link)
        for node, address in enumerate(ADDRESSES):
            self._do(node, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            self._do(node, "ip", "link", "set", "lo", "up")
            self._do(node, "ip", "link", "set", "eth0", "up")
        for node, address in enumerate(reversed(ADDRESSES)):
            # vLLM and Ray learn a node's address from its default route.
            self._do(node, "ip", "route", "add", "default", "via", address)
        head = ["--head", f"--port={GCS_PORT}", "--include-dashboard=false"]
        self._ray(0, *head, f"--temp-dir={self.home}/ray")
        self._ray(1, f"--address={ADDRESSES[0]}:{GCS_PORT}")

    def _ray(self, node: int, *arguments: str) -> None:
        self._do(
            node,
            self._python,
            "-m",
            "ray.scripts.scripts",
            "start",
            f"--node-ip-address={ADDRESSES[node]}",
            "--num-cpus=4",
            "--num-gpus=1",
            "--object-store-memory=150000000",
            "--disable-usage-stats",
            *arguments,
        )

    def run(self, script: Path, argument: str, environ: Mapping[str, str]) -> tuple[int, str]:
        """Run a script on the first node, without the right to ports below 1024."""
        done = subprocess.run(
            self._on(0, [*DROP, self._python, script, argument]),
            env={
                **self.environ,
                "VLLM_HOST_IP": ADDRESSES[0],
                "RAY_ADDRESS": f"{ADDRESSES[0]}:{GCS_PORT}",
                **environ,
            },
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=900,
            check=False,
        )
        return done.returncode, done.stdout

    def stop(self) -> None:
        """End every process of the nodes, and with them the namespaces."""
        networks = {_network(holder.pid) for holder in self._holders} - {None, _network("self")}
        for _ in range(50):
            left = [pid for pid in _processes() if _network(pid) in networks]
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.1)
        for holder in self._holders:
            holder.kill()
            holder.communicate()
        shutil.rmtree(self.home, ignore_errors=True)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _network(pid: int | str) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


@contextlib.contextmanager
def cluster(python: Path, environ: Mapping[str, str]) -> Iterator[Cluster]:
    """Start two nodes, and end them."""
    made = Cluster(python, environ)
    try:
        made.start()
        yield made
    finally:
        made.stop()
