"""The names of the environment variables that the overlay and its patches read at run time.

They start with ``NRL_``: vLLM warns about, or refuses, ``VLLM_`` names that it does not know.
"""

from __future__ import annotations

PREFIX = "NRL_VLLM_"

# In place of a variable's name, for a patch that nothing switches off.
ALWAYS = "always"

# "off" runs stock vLLM in an environment that has the overlay.
OVERLAY = f"{PREFIX}OVERLAY"
# Patch fp32-lm-head: "1" runs the LM head in fp32.
FP32_LM_HEAD = f"{PREFIX}FP32_LM_HEAD"
# Patch ray-py-executable: the interpreter of an engine's Ray workers.
RAY_PY_EXECUTABLE = f"{PREFIX}RAY_PY_EXECUTABLE"

# vLLM's own list of variables that its Ray executors copy to workers, beside those it knows.
COPIED = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
# Ray's own. If it is not off, Ray starts workers of a driver under `uv run` in an environment of
# their own.
UV_RUN = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
# vLLM's own list of the plugins that it may load.
PLUGINS = "VLLM_PLUGINS"
