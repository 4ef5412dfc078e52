"""An engine with one worker on each of two nodes; runs on the first of them.

Arguments: ``model``, a directory; ``prompts``, lists of token ids. Result, beside the greedy
tokens: the addresses that the engine's parts tell each other, and the ports on which its processes
listen by the account of each node's kernel.
"""

import json
import os
import sys
from pathlib import Path

from tests.support import vllm_internals

TOKENS = 8


def listening():
    """Return the ports that are listened on in this network namespace."""
    import psutil

    return sorted(
        {entry.laddr.port for entry in psutil.net_connections("tcp") if entry.status == "LISTEN"}
    )


def look(worker):
    """Run in a worker: return the addresses by which it is reached."""
    return {
        "init method": worker.distributed_init_method,
        "group queue": vllm_internals.group_queue_address(),
        "network": str(Path("/proc/self/ns/net").readlink()),
    }


def main(given):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    from vllm import LLM, SamplingParams

    engine = LLM(
        given["model"],
        tensor_parallel_size=2,
        distributed_executor_backend="ray",
        dtype="float32",
        **given["engine"],
    )
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt in given["prompts"]]
    outputs = engine.generate(prompts, sampling)
    executor = vllm_internals.executor_of(engine)
    nodes = {}
    for node in ray.nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ask = ray.remote(listening).options(num_cpus=0, scheduling_strategy=there)
        nodes[node["NodeManagerAddress"]] = ray.get(ask.remote())
    return {
        "executor": type(executor).__name__,
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "queues": vllm_internals.queue_addresses(executor),
        "workers": engine.collective_rpc(look),
        "listening": nodes,
    }


if __name__ == "__main__":
    result = main(json.loads(sys.argv[1]))
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))
