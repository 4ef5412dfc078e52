"""What the Ray actors of an engine's workers are started with.

vLLM sends a driver's variables to its Ray workers after they have imported it. What has to be
settled before belongs into the ``runtime_env`` of the actors: the interpreter, the overlay's
switches, and ``RAY_ENABLE_UV_RUN_RUNTIME_ENV``, which Ray reads when it is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from vllm_nemo._overlay.switches import PREFIX, UV_RUN
from vllm_nemo._overlay.switches import RAY_PY_EXECUTABLE as PY_EXECUTABLE

# In a container the image brings the interpreter; Ray refuses an environment with both.
_CONTAINERS = ("container", "image_uri")

_logger = logging.getLogger("vllm.nemo.ray_workers")


def py_executable() -> str | None:
    """Return the interpreter that was asked for, or None for the one that Ray would take.

    ``NRL_VLLM_RAY_PY_EXECUTABLE=driver`` is the interpreter of this process; any other value is
    Ray's ``py_executable`` as it is, a path or a command ("uv run --locked").
    """
    value = os.environ.get(PY_EXECUTABLE, "").strip()
    if not value:
        return None
    return sys.executable if value == "driver" else value


def set_defaults(runtime_env: dict[str, Any]) -> None:
    """Add the interpreter and the switches to a Ray ``runtime_env``, in place.

    What it holds already stays, be it an interpreter or the value of a variable: it came from the
    caller. Variables that the user excludes from copying
    (``ray_non_carry_over_env_vars.json``) stay away.
    """
    from vllm.ray.ray_env import RAY_NON_CARRY_OVER_ENV_VARS

    python = py_executable()
    container = next((key for key in _CONTAINERS if runtime_env.get(key)), None)
    if python is not None and container is not None:
        _logger.warning(
            "%s=%s has no effect: the runtime_env of these workers has %r, and the interpreter "
            "is the image's.",
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
    """Return the keyword arguments for ``ray.remote`` that ``set_defaults`` asks for, or none.

    For RayDistributedExecutor, which builds the rest of the ``runtime_env`` around what it gets.
    """
    runtime_env: dict[str, Any] = {}
    set_defaults(runtime_env)
    return {"runtime_env": runtime_env} if runtime_env else {}
