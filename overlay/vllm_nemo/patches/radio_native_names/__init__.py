"""RADIO and projector weights under transformers' names (patch ``radio-native-names``).

- ``weights``: generators over the streams of weights of vLLM's tower and of its whole model
- ``config``: a vision config in transformers' own, flat format
"""

from vllm_nemo.patches.radio_native_names.config import complete_config
from vllm_nemo.patches.radio_native_names.weights import translate_model, translate_tower

__all__ = ["complete_config", "translate_model", "translate_tower"]
