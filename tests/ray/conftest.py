"""A real Ray cluster on loopback addresses: a raylet is a node, and some are broken on purpose."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import engine

from tests.support import installed

RAY = "ray==2.60.0"
START_SECONDS = 120

_PR_SET_PDEATHSIG = 1

# All on the loopback interface. Ray would take 127.0.0.1 for the machine's outer address.
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 7))


def install_ray(environment: installed.Interpreter) -> installed.Interpreter:
    command = ["uv", "pip", "install", "--quiet", "--python", environment.python, RAY]
    subprocess.run([sys.executable, "-m", *command], check=True)
    return environment


class Cluster:
    """Nodes of one cluster, each with its address, interpreter and environment."""

    def __init__(self) -> None:
        # Not in pytest's directory: the path of a socket has at most 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="ray-"))
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.address = f"{ADDRESSES[0]}:{_free_port()}"
        # A home of its own and no token: other clusters of this machine are not to be disturbed.
        self.env = {
            "HOME": str(self.directory),
            "RAY_TMPDIR": str(self.directory),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_register_timeout_seconds": str(START_SECONDS),
            "RAY_raylet_start_wait_time_s": str(START_SECONDS),
        }

    def start(
        self, address: str, environment: installed.Interpreter, env: Mapping[str, str] | None = None
    ) -> None:
        """Start a node; the first one is the head."""
        role = ["--address", self.address]
        if not self.nodes:
            role = ["--head", "--port", self.address.split(":")[1], "--include-dashboard=false"]
        options = [
            *("--block", "--disable-usage-stats", "--include-log-monitor=false", "--num-cpus=1"),
            *("--node-ip-address", address),
            *("--min-worker-port=0", "--max-worker-port=0", "--object-store-memory=80000000"),
        ]
        with self._log(address).open("wb") as log:
            self.nodes[address] = subprocess.Popen(
                [environment.python, "-m", "ray.scripts.scripts", "start", *role, *options],
                env=engine.variables(**{**self.env, **(env or {})}),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (pytest has one thread)
            )

    def wait(self) -> None:
        """Wait until every node that was started is up."""
        deadline = time.monotonic() + START_SECONDS
        for address, process in self.nodes.items():
            while "Ray runtime started" not in (text := self._log(address).read_text()):
                assert process.poll() is None, text
                assert time.monotonic() < deadline, text
                time.sleep(0.1)

    def _log(self, address: str) -> Path:
        return self.directory / f"{address}.log"

    @contextlib.contextmanager
    def frozen(self, address: str) -> Iterator[None]:
        """Stop a node's processes without ending them, as a machine that hangs."""
        processes = _descendants(self.nodes[address].pid)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def processes(self) -> list[int]:
        """Return every process of the cluster, told by what it inherited."""
        mark = f"\0RAY_TMPDIR={self.directory}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in b"\0" + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End the nodes, the head last. Not `ray stop`, which ends those of other clusters too."""
        for process in reversed(self.nodes.values()):
            process.terminate()
        for process in self.nodes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.nodes.values():
            process.wait(20)
        shutil.rmtree(self.directory, ignore_errors=True)


def _end_with_parent() -> None:
    # Also when pytest is killed, and no fixture is torn down.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    """Return a port that is free on all interfaces, below those that the system hands out."""
    for port in random.sample(range(15000, 32000), 1000):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("::", port))
            return port
    pytest.fail("no port is free")


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for known in found:
        found += parents.get(known, [])
    return found


class Environments:
    """The interpreters that the nodes have."""

    def __init__(self, root: Path) -> None:
        self.good = install_ray(installed.install(root / "good"))
        # No overlay at all, and one of another revision with other contents.
        self.bare = install_ray(installed.make(root / "bare"))
        installed.write_vllm(self.bare.site_packages)
        self.other = install_ray(installed.make(root / "other"))
        installed.write_vllm(self.other.site_packages)
        served = {**installed.SERVED, "vllm/added.py": "ORIGIN = 'later'\n"}
        installed.write_overlay(self.other.site_packages, served=served)
        manifest = self.other.file("vllm_nemo/manifest.json")
        manifest.write_text(manifest.read_text().replace(installed.OVERLAY_VERSION, "0.29.0.2"))


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    return Environments(tmp_path_factory.mktemp("environments"))


@pytest.fixture(scope="session")
def cluster(environments: Environments) -> Iterator[Cluster]:
    """Give a cluster of two nodes that are alike."""
    cluster = Cluster()
    try:
        cluster.start(ADDRESSES[0], environments.good)
        cluster.wait()
        cluster.start(ADDRESSES[1], environments.good)
        cluster.wait()
        yield cluster
    finally:
        cluster.close()
    assert cluster.processes() == []


class Asked:
    """What the doctor printed about a cluster, and its exit status."""

    def __init__(
        self, cluster: Cluster, environment: installed.Interpreter, arguments: Sequence[str]
    ) -> None:
        command = ["-m", "vllm_nemo", "doctor", "--ray", cluster.address, *arguments]
        # From a directory where a vllm_nemo could be imported, as in a checkout.
        self.process = environment.run(*command, env=cluster.env, cwd=installed.OVERLAY)
        self.status = self.process.returncode
        self.text = self.process.stdout

    @property
    def data(self) -> dict[str, Any]:
        assert self.text, self.process.stderr
        return json.loads(self.text)

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["node"]: node for node in self.data["nodes"]}
