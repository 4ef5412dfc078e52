"""vLLM's RadioModel by itself, without an engine, after a dummy start."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import torch

from tests.support import vllm_internals
from tests.support.radio import reference

LAYERS = 2


def start(device, rank=0, world=1, rendezvous=""):
    """Set this process up for vLLM's parallel layers; returns the config to make models under."""
    vllm_internals.keep_weights_live(device)
    config = vllm_internals.VllmConfig()
    vllm_internals.start_parallel_groups(config, rank, world, device, rendezvous)
    return config


def make(config, device, dtype, layers=LAYERS, **options):
    """Make a tower as ``load_format="dummy"`` leaves it: all parameters are noise."""
    radio = vllm_internals.RadioConfig(
        model_name="vit_small_patch16_224",
        image_size=reference.IMAGE,
        patch_size=reference.PATCH,
        video_temporal_patch_size=2,
        **{**reference.ARGS, **options},
    )
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with vllm_internals.set_current_vllm_config(config), torch.device(device):
            model = vllm_internals.RadioModel(config=radio, num_hidden_layers_override=layers)
    finally:
        torch.set_default_dtype(previous)
    model.eval()
    vllm_internals.record_for_refit(model, device)
    model.model_dtype = dtype
    noise(model)
    for module in model.modules():
        if device == "cpu" and hasattr(module, "quant_method"):
            vllm_internals.process_weights(module)
    return model


def noise(model):
    """Overwrite all weights, as a dummy start or waking up from level-2 sleep does."""
    generator = torch.Generator().manual_seed(1234)
    for value in model.state_dict().values():
        if value.is_floating_point():
            # What a dummy start of vLLM draws from.
            value.copy_(torch.empty(value.shape).uniform_(-1e-3, 1e-3, generator=generator))


def load(model, pairs, limit=300_000):
    """Load a stream batch by batch; returns the names that vLLM says were loaded."""
    loaded = set()
    for batch in reference.batches(pairs, limit):
        loaded |= model.load_weights(batch)
    return loaded


def layerwise(model, device):
    """vLLM's own refit, as ``start_weight_update`` ... ``finish_weight_update`` do it."""
    return vllm_internals.refit(model, SimpleNamespace(dtype=model.model_dtype), device)


def right(model, state):
    """How many parameters hold exactly what they should, after the cast to their dtype."""
    expected = reference.in_vllm(state)
    parameters = dict(model.named_parameters())
    assert parameters.keys() == expected.keys()
    return sum(
        torch.equal(parameters[name].data, value.to(parameters[name]))
        for name, value in expected.items()
    )


class Log(logging.Handler):
    """Collects what the overlay logs."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("vllm.nemo.radio_native_names").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())

    def take(self):
        lines, self.lines = self.lines, []
        return lines
