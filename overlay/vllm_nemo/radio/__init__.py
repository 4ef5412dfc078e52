"""Weights of Nemotron VL's RADIO vision tower that arrive by refit.

In reinforcement learning the engine starts with ``load_format="dummy"`` and a trainer streams the
weights, a batch at a time, under the names of the trainer's model. Stock vLLM's RADIO loader
(``vllm/model_executor/models/radio.py``, ``nano_nemotron_vl.py``) was written for one checkpoint
format; what it does not recognise it drops without a word. The patches ``radio-layerscale``,
``radio-native-names`` and ``radio-final-layernorm`` put the functions of this package in front of
vLLM's loops, as generators over the stream of ``(name, tensor)`` pairs.

- ``names``: what every name of the known formats stands for
- ``tower``: the streams of vLLM's ``RadioModel``
- ``vl``: the stream of the whole model, and its final LayerNorm
- ``pieces``: parameters of one module that arrive in different refits
- ``config``: a vision config of transformers' own format
"""

from vllm_nemo.radio.config import complete_config
from vllm_nemo.radio.tower import load_layer_scales, translate_tower
from vllm_nemo.radio.vl import (
    add_final_layernorm,
    apply_final_layernorm,
    load_final_layernorm,
    translate_model,
)

__all__ = [
    "add_final_layernorm",
    "apply_final_layernorm",
    "complete_config",
    "load_final_layernorm",
    "load_layer_scales",
    "translate_model",
    "translate_tower",
]
