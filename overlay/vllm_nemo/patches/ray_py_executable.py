"""The interpreter and the switches of an engine's Ray workers (patch ``ray-py-executable``).

vLLM sends the driver's variables to its Ray workers after they have imported vLLM. Some things have
to be known earlier, so they go into the ``runtime_env`` of the actors: the interpreter, the
overlay's switches, and ``RAY_ENABLE_UV_RUN_RUNTIME_ENV``, which Ray reads when it is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from vllm_nemo._overlay.switches import PREFIX, UV_RUN
from vllm_nemo._overlay.switches import RAY_PY_EXECUTABLE as PY_EXECUTABLE

# The interpreter in a container is the image's; Ray refuses a runtime_env with both.
_CONTAINERS = ("container", "image_uri")

_logger = logging.getLogger("vllm.nemo.ray_py_executable")


def py_executable() -> str | None:
    """Return the interpreter that ``NRL_VLLM_RAY_PY_EXECUTABLE`` asks for.

    Returns:
        For the value "driver", the interpreter of this process. Any other value as it is: Ray's
        ``py_executable``, a path or a command ("uv run --locked"). None if the variable is unset
        or empty: Ray's own choice.
    """
    value = os.environ.get(PY_EXECUTABLE, "").strip()
    if not value:
        return None
    return sys.executable if value == "driver" else value


def set_defaults(runtime_env: dict[str, Any]) -> None:
    """Add the interpreter and the switches to a Ray ``runtime_env``.

    Variables that the user excludes from copying (``ray_non_carry_over_env_vars.json``) are left
    out.

    Args:
        runtime_env: The environment of the workers, changed in place. What it has already, an
            interpreter or the value of a variable, comes from the caller and stays.
    """
    from vllm.ray.ray_env import RAY_NON_CARRY_OVER_ENV_VARS

    python = py_executable()
    container = next((key for key in _CONTAINERS if runtime_env.get(key)), None)
    if python is not None and container is not None:
        _logger.warning(
            "%s=%s has no effect: the runtime_env of these workers has %r, so their interpreter is "
            "the image's.",
            PY_EXECUTABLE,
            os.environ[PY_EXECUTABLE],
            container,
        )
    elif python is not None:
        runtime_env.setdefault("py_executable", python)

    variables = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(PREFIX) or name == UV_RUN) and name not in RAY_NON_CARRY_OVER_ENV_VARS
    }
    if variables:
        runtime_env["env_vars"] = {**variables, **(runtime_env.get("env_vars") or {})}


def actor_options() -> dict[str, Any]:
    """Return what ``set_defaults`` adds, as keyword arguments for ``ray.remote``.

    For RayDistributedExecutor, which adds its own entries to the ``runtime_env`` that it gets.

    Returns:
        ``{"runtime_env": ...}``, or nothing if there is nothing to add.
    """
    runtime_env: dict[str, Any] = {}
    set_defaults(runtime_env)
    return {"runtime_env": runtime_env} if runtime_env else {}
