"""vLLM's RADIO tower by itself, refitted whenever it is asked.

Argument: ``layers``. A request names the format of the stream, or None, to be told its size.
Answers with the milliseconds of the stream, and the MiB that were added to what was there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import answers

# The stream, and a tower without an engine, are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "patches" / "radio"))

import reference
import torch
import vllm_tower

reference.HIDDEN, reference.HEADS = 1024, 16
LIMIT = 64 << 20
LAYERS = answers.ARGUMENTS["layers"]
DTYPE = torch.bfloat16


def make() -> torch.nn.Module:
    """Make a ViT-L tower of vLLM's with weights that are made up."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.models.radio import RadioModel
    from vllm.transformers_utils.configs.radio import RadioConfig

    radio = RadioConfig(
        model_name="vit_large_patch16_224",
        image_size=reference.IMAGE,
        patch_size=reference.PATCH,
        video_temporal_patch_size=2,
        **reference.ARGS,
    )
    config = vllm_tower.start("cpu")
    previous = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with set_current_vllm_config(config):
            made = RadioModel(config=radio, num_hidden_layers_override=LAYERS).eval()
    finally:
        torch.set_default_dtype(previous)
    vllm_tower.noise(made)
    return made


model = make()
state = reference.weights(reference.tower(LAYERS, 0, dtype=DTYPE))
streams = {fmt: reference.stream(state, fmt) for fmt in ("legacy", "transformers")}
parameters = dict(model.named_parameters())


@torch.inference_mode()
def refit(fmt: str | None) -> dict[str, float]:
    """Load one stream."""
    if fmt is None:
        return {"MiB": sum(value.nbytes for value in state.values()) / 2**20}
    answers.forget_peak()
    before = answers.resident()
    started = time.perf_counter()
    loaded = set()
    for batch in reference.batches(streams[fmt], LIMIT):
        loaded |= model.load_weights(batch)
    taken = time.perf_counter() - started
    missing = {name for name in parameters if name not in loaded and ".ls" not in name}
    if missing:
        raise RuntimeError(f"not loaded: {sorted(missing)}")
    return {"ms": 1e3 * taken, "MiB": (answers.peak() - before) / 2**20}


answers.serve(refit)
