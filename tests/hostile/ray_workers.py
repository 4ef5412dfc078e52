"""Which vLLM do Ray's workers run, asked of a real Ray on one node.

Argument: a JSON object with ``cases``, each a runtime_env and whether the task imports vllm_nemo
first, by name; ``cached``, the interpreter of an environment without the overlay; and ``install``,
a command that adds it there. Written to SCENARIO_RESULT: what each worker told.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Ray writes a token there that later clusters of the user would ask for.
os.environ["HOME"] = str(Path.cwd())
import ray


@ray.remote(num_cpus=0)
def tell(first):
    import os
    import sys

    if first:
        import vllm_nemo  # noqa: F401
    try:
        import vllm.models

        origin = vllm.models.ORIGIN
    except Exception as error:  # noqa: BLE001 - an answer as well
        origin = type(error).__name__
    try:
        from vllm_nemo._overlay.guard import check

        check()
        guard = "passes"
    except Exception as error:  # noqa: BLE001
        guard = type(error).__name__
    return {"origin": origin, "guard": guard, "prefix": sys.prefix, "pid": os.getpid()}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80_000_000,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(directory),
    )
    # All at once: what takes time is to make the environments.
    asked = {
        name: tell.options(runtime_env=case["runtime_env"]).remote(case["first"])
        for name, case in given["cases"].items()
    }
    told = {name: ray.get(task, timeout=240) for name, task in asked.items()}

    def ask(**runtime_env):
        options = {"py_executable": given["cached"], **runtime_env}
        return ray.get(tell.options(runtime_env=options).remote(False), timeout=120)

    told["cached"] = ask()
    subprocess.run(given["install"], check=True)
    told["cached, asked again"] = ask()
    told["cached, a new worker"] = ask(env_vars={"ANOTHER": "worker"})
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(told))
    ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)
