"""Scenario: how both Ray executors start a worker, with a real Ray on one node.

The executors run their own code; in the place of vLLM's worker, an actor that imports no vLLM
tells how its process was started. Argument: ``cases``, a list of objects with ``executor`` (1 or
2), ``python`` (NRL_VLLM_RAY_PY_EXECUTABLE; WRAPPER, OTHER and DRIVER stand for paths) and
``caller`` (the runtime_env of version 2's caller). Result: for each case what the actor tells.
"""

import json
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import psutil

# Ray writes a token there, and later clusters of the user would ask for it.
os.environ["HOME"] = str(Path.cwd())
import ray

from tests.support import vllm_internals

SWITCHES = {"NRL_VLLM_FP32_LM_HEAD": "1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


class Worker:
    """Takes the calls of an executor and does nothing but remember."""

    def __init__(self, rpc_rank=0):  # noqa: ARG002 - given by version 1
        self.sent, self.init_method = {}, None

    def get_node_ip(self):
        return "127.0.0.1"

    def get_node_and_physical_gpu_ids(self):
        return ray.get_runtime_context().get_node_id(), ["0"]

    def execute_method(self, method, *arguments):
        if callable(method):
            return method(self, *arguments)
        if method == "update_environment_variables":
            self.sent = arguments[0][0]
        if method == "init_worker":
            self.init_method = arguments[0][0]["distributed_init_method"]
        return None

    def tell(self):
        # The environment that the process was started with, without later additions.
        started = Path("/proc/self/environ").read_bytes().decode().split("\0")
        connections = psutil.Process().net_connections(kind="tcp")
        return {
            "pid": os.getpid(),
            "started": dict(entry.split("=", 1) for entry in started if "=" in entry),
            "sent": self.sent,
            "init method": self.init_method,
            "listening": [c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN],
        }


def first_executor(_caller):
    (worker,), placement_group = vllm_internals.ray_workers_v1(Worker)
    told = ray.get(worker.tell.remote())
    ray.kill(worker)
    ray.util.remove_placement_group(placement_group)
    return told


def second_executor(caller):
    runtime_env = vllm_internals.ray_runtime_env_v2(caller)
    worker = ray.remote(Worker).options(num_cpus=0, num_gpus=1, runtime_env=runtime_env).remote()
    told = ray.get(worker.tell.remote())
    ray.kill(worker)
    return told


def wrapper(directory, name):
    """Make an interpreter that notes the process that it becomes."""
    path = directory / name
    path.write_text(f'#!/bin/sh\necho $$ >> {path}.ran\nexec "{sys.executable}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    Path(f"{path}.ran").touch()
    return str(path)


def through(path, pid):
    return str(pid) in Path(f"{path}.ran").read_text().split()


def run(case, paths):
    for name in ("NRL_VLLM_RAY_PY_EXECUTABLE", *SWITCHES):
        os.environ.pop(name, None)
    python, caller = case.get("python"), json.dumps(case.get("caller"))
    for name, path in paths.items():
        python, caller = python and python.replace(name, path), caller.replace(name, path)
    if python:
        os.environ["NRL_VLLM_RAY_PY_EXECUTABLE"] = python
    if case.get("switches"):
        os.environ.update(SWITCHES)
    executor = first_executor if case["executor"] == 1 else second_executor
    own, sys.executable = sys.executable, paths["DRIVER"]
    try:
        told = executor(json.loads(caller))
    finally:
        sys.executable = own
    told["through"] = [name for name, path in paths.items() if through(path, told["pid"])]
    return told


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    ray.init(
        num_cpus=4,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(directory),
    )
    interpreters = {
        name: wrapper(directory, name.lower()) for name in ("WRAPPER", "OTHER", "DRIVER")
    }
    result = [run(case, interpreters) for case in given["cases"]]
    os.environ.update(SWITCHES)
    copied = sorted(vllm_internals.get_env_vars_to_copy() & set(SWITCHES))
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps({"told": result, "copied": copied}))
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)
