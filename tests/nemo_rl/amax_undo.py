"""Open and close ModelOpt's amax aliases in every way, on a plain torch module.

Result: the names of the aliases that a module has at each point.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import torch
from vllm_nemo import modelopt_moe_amax_aliases


def quantizer(*buffers: str) -> torch.nn.Module:
    module = torch.nn.Module()
    for name in buffers:
        module.register_buffer(name, torch.ones(2))
    return module


class Broken(torch.nn.Module):
    """Fails when its children are listed, after the modules before it have got their aliases."""

    def named_children(self):
        raise RuntimeError


experts = torch.nn.Module()
experts.add_module("w13_input_quantizer", quantizer("_amax", "_scale"))
experts.add_module("w2_x_quantizer", quantizer("pre_amax", "mine_amax"))
experts.add_module("w3_input_quantizer", quantizer("_amax"))
experts.add_module("w2_input_scaler", quantizer("_amax"))
experts.w2_x_quantizer.add_module("inner", quantizer("_amax"))
vars(experts)["w2_x_quantizer.mine_amax"] = "the caller's"
model = torch.nn.ModuleList([torch.nn.Linear(2, 2), experts])


def aliases() -> list[str]:
    return sorted(
        name
        for name, value in vars(experts).items()
        if "quantizer." in name and isinstance(value, torch.Tensor)
    )


result = {}
with modelopt_moe_amax_aliases(model):
    result["open"] = aliases()
    buffer = experts.w13_input_quantizer._amax
    result["same_object"] = getattr(experts, "w13_input_quantizer._amax") is buffer
    with modelopt_moe_amax_aliases(model):
        pass
    result["nested_outer"] = aliases()
with contextlib.suppress(KeyError), modelopt_moe_amax_aliases(model):
    raise KeyError
result["after_error"] = aliases()
try:
    with modelopt_moe_amax_aliases(torch.nn.ModuleList([*model, Broken()])):
        result["setup_error"] = None
except RuntimeError as error:
    result["setup_error"] = type(error).__name__
result["after_setup_error"] = aliases()
with modelopt_moe_amax_aliases(model):
    result["again"] = aliases()
result["closed"] = aliases()
result["kept"] = getattr(experts, "w2_x_quantizer.mine_amax")
Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))
