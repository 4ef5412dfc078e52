"""Scenario: the tower over two tensor-parallel ranks, each a process, refitted in every format.

``device``: where; "cuda" takes a device a rank.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing

from tests.support.radio import reference, vllm_tower

WORLD = 2
LAYERS = 2


def shard(name, value, rank):
    """The part of a parameter that a rank holds, if vLLM splits it."""

    def part(tensor, dim):
        return tensor.chunk(WORLD, dim)[rank]

    if ".attn.qkv." in name:  # heads of q, of k and of v
        return torch.cat([part(third, 0) for third in value.chunk(3)])
    if ".mlp.fc1." in name:
        return part(value, 0)
    if name.endswith((".attn.proj.weight", ".mlp.fc2.weight")):
        return part(value, 1)
    return value


def run(rank, device, scratch):
    if device == "cuda":
        torch.cuda.set_device(rank)
    config = vllm_tower.start(device, rank, WORLD, f"file://{scratch}/rendezvous")
    state = reference.weights(reference.tower(LAYERS, 1))
    state = {name: value.to(device) for name, value in state.items()}
    given = reference.inputs(device, torch.float32)
    oracle = reference.features(reference.tower(LAYERS, 1, device), given)
    result = {}
    for way in ("direct", "layerwise"):
        for fmt in reference.FORMATS:
            model = vllm_tower.make(config, device, torch.float32, LAYERS)
            pairs = reference.stream(state, fmt)
            if way == "direct":
                vllm_tower.load(model, pairs)
            else:
                with vllm_tower.layerwise(model, device):
                    vllm_tower.load(model, pairs)
            parameters = dict(model.named_parameters())
            expected = reference.in_vllm(state)
            right = sum(
                torch.equal(parameters[name].data, shard(name, value, rank))
                for name, value in expected.items()
            )
            compared = reference.compare(reference.vllm_features(model, given), oracle)
            qkv = parameters["model.encoder.layers.0.attn.qkv.weight"]
            result[f"{way} {fmt}"] = {
                "right": right,
                "of": len(expected),
                "qkv": list(qkv.shape),
                "difference": max(c["difference"] for c in compared.values()),
            }
    Path(scratch, f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        # vLLM's CPU worker names the ranks' shared memory by it.
        os.environ["VLLM_DIST_IDENT"] = Path(scratch).name
        torch.multiprocessing.spawn(run, (arguments["device"], scratch), WORLD)
        results = [json.loads(Path(scratch, f"{rank}.json").read_text()) for rank in range(WORLD)]
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(results))
