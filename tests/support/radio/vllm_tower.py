"""vLLM's RadioModel by itself, without an engine, after a dummy start."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from types import SimpleNamespace

import torch

from tests.support.radio import reference

LAYERS = 2


def start(device, rank=0, world=1, rendezvous=None):
    """Set this process up for vLLM's parallel layers; returns the config to make models under."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    keep_weights_live(device)
    config = VllmConfig()
    rendezvous = rendezvous or f"file://{tempfile.mkdtemp()}/rendezvous"
    with set_current_vllm_config(config):
        init_distributed_environment(
            world, rank, rendezvous, rank, backend="nccl" if device == "cuda" else "gloo"
        )
        initialize_model_parallel(world, 1)
    return config


def keep_weights_live(device):
    """Stop the CPU backend from packing linear weights, after which none can be loaded.

    CUDA keeps the weights as they are, and so a trainer loads them into a running engine. On a CPU
    this makes the same possible; what is computed does not change.
    """
    if device != "cpu":
        return
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    def process_weights_after_loading(self, layer):
        layer.cpu_linear = torch.nn.functional.linear

    UnquantizedLinearMethod.process_weights_after_loading = process_weights_after_loading


def make(config, device, dtype, layers=LAYERS, **options):
    """Make a tower as ``load_format="dummy"`` leaves it: all parameters are noise."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload.layerwise import record_metadata_for_reloading
    from vllm.model_executor.models.radio import RadioModel
    from vllm.transformers_utils.configs.radio import RadioConfig

    radio = RadioConfig(
        model_name="vit_small_patch16_224",
        image_size=reference.IMAGE,
        patch_size=reference.PATCH,
        video_temporal_patch_size=2,
        **{**reference.ARGS, **options},
    )
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with set_current_vllm_config(config), torch.device(device):
            model = RadioModel(config=radio, num_hidden_layers_override=layers).eval()
    finally:
        torch.set_default_dtype(previous)
    with torch.device(device):
        record_metadata_for_reloading(model)
    model.model_dtype = dtype
    noise(model)
    for module in model.modules():
        if device == "cpu" and hasattr(module, "quant_method"):
            module.quant_method.process_weights_after_loading(module)
    return model


def noise(model):
    """Overwrite all weights, as a dummy start or waking up from level-2 sleep does."""
    from vllm.model_executor.model_loader.weight_utils import initialize_dummy_weights

    initialize_dummy_weights(model, None)


def load(model, pairs, limit=300_000):
    """Load a stream batch by batch; returns the names that vLLM says were loaded."""
    loaded = set()
    for batch in reference.batches(pairs, limit):
        loaded |= model.load_weights(batch)
    return loaded


@contextlib.contextmanager
def layerwise(model, device):
    """vLLM's own refit, as ``start_weight_update`` ... ``finish_weight_update`` do it."""
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    with torch.device(device):
        initialize_layerwise_reload(model)
    yield
    with torch.device(device):
        # All that is read of the model's config is the dtype for attention layers.
        finalize_layerwise_reload(model, SimpleNamespace(dtype=model.model_dtype))


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
        logging.getLogger("vllm.nemo.radio").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())

    def take(self):
        lines, self.lines = self.lines, []
        return lines
