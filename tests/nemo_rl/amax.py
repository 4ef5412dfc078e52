"""Load ModelOpt's expert amax values through vLLM's real expert loader, with and without aliases.

Result: ``plain``: what the loader makes of it by itself (an error's type, or the values);
``aliased``: the values that arrive in the buffers; ``after``: what is left on the layer then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from vllm_nemo import modelopt_moe_amax_aliases

from tests.support import vllm_internals

EXPERTS = 4
# A stream as a trainer sends it: one value a projection and quantizer of each expert.
STREAM = [
    (f"{expert}.{projection}.{quantizer}._amax", 10.0 * expert + place)
    for expert in range(EXPERTS)
    for place, (projection, quantizer) in enumerate(
        (p, q)
        for p in ("gate_proj", "up_proj", "down_proj")
        for q in ("input_quantizer", "weight_quantizer")
    )
]


def loader(param, loaded_weight, weight_name, shard_id, expert_id, return_success=False):
    """Keep the largest value of an expert's shards: one quantizer serves w1 and w3."""
    param[expert_id] = max(float(param[expert_id]), float(loaded_weight))
    return True


def make_layer():
    runner = vllm_internals.make_moe_layer(
        num_experts=EXPERTS,
        top_k=2,
        hidden_size=64,
        intermediate_size=64,
        params_dtype=torch.float32,
        renormalize=True,
        prefix="model.layers.0.mlp.experts",
    )
    experts = runner.routed_experts
    for shard in ("w13", "w2"):
        for quantizer in ("input_quantizer", "weight_quantizer"):
            module = torch.nn.Module()
            module.register_buffer("_amax", torch.zeros(EXPERTS))
            module._amax.weight_loader = loader
            experts.add_module(f"{shard}_{quantizer}", module)
    return runner, experts


def load(experts) -> None:
    list(experts.load_weights((name, torch.tensor(value)) for name, value in STREAM))


def values(experts) -> dict[str, list[float]]:
    return {n: b.tolist() for n, b in experts.named_buffers() if n.endswith("_amax")}


def main() -> None:
    config = vllm_internals.VllmConfig()
    vllm_internals.start_parallel_groups(config)
    with vllm_internals.set_current_vllm_config(config):
        runner, experts = make_layer()
        registered = sorted(n for n, _ in experts.named_buffers()), sorted(experts.state_dict())
        try:
            load(experts)
        except Exception as error:  # noqa: BLE001  (what it is, is the result)
            plain = type(error).__name__
        else:
            plain = values(experts)
        with modelopt_moe_amax_aliases(runner):
            same = sorted(n for n, _ in experts.named_buffers()), sorted(experts.state_dict())
            load(experts)
        left = [name for name in vars(experts) if name.endswith("._amax")]
    result = {
        "plain": plain,
        "aliased": values(experts),
        "registered_the_same": same == registered,
        "left": left,
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
