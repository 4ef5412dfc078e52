"""Prepare a process that is about to start vLLM engines.

NeMo-RL's patcher rewrites vLLM when a worker starts. Here two steps are left: check that the
overlay has what the caller needs, and set the environment that vLLM's workers inherit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_nemo._overlay import api, finder
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.manifest import load_manifest
from vllm_nemo._overlay.switches import COPIED, FP32_LM_HEAD, OVERLAY, RAY_PY_EXECUTABLE, UV_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable


def prepare_worker(
    *,
    py_executable: str | None = None,
    extra_env_vars: Iterable[str] | None = None,
    fp32_lm_head: bool | None = None,
    require_routed_experts_capture: bool = False,
) -> None:
    """Check that vLLM has what the caller needs, and set what its workers inherit.

    Call it in the process that will create the engine, before vLLM is imported. Nothing in the
    environment is changed unless everything asked for is there.

    Args:
        py_executable: The interpreter (or a command such as ``uv run --locked``) for Ray workers;
            ``"driver"`` stands for this process's ``sys.executable``, None for Ray's choice.
        extra_env_vars: Names of further variables that Ray workers get from this process. They are
            added to those in ``VLLM_RAY_EXTRA_ENV_VARS_TO_COPY``.
        fp32_lm_head: True for logits from an fp32 projection. False and None clear the variable,
            so that a value in the caller's environment does not switch it on.
        require_routed_experts_capture: True if the caller will ask for routed experts, so that an
            overlay without them is an error here, and not when the engine starts.

    Raises:
        OverlayError: if the overlay is switched off, is not for the vLLM that is installed, or
            lacks a patch that an argument needs. The message names patch, release and reason.
        TypeError: if ``extra_env_vars`` is one string.
        ValueError: if a name of a variable is empty or has a comma or an equals sign, or if
            ``py_executable`` is empty.
    """
    names = _names(extra_env_vars)
    if py_executable is not None and not py_executable.strip():
        raise ValueError("py_executable is empty; leave it out for Ray's choice of interpreter")
    require_overlay()
    if py_executable is not None:
        api.require("ray-py-executable")
    if fp32_lm_head:
        api.require("fp32-lm-head")
    if require_routed_experts_capture:
        api.require("routed-experts-capture")
    _set(RAY_PY_EXECUTABLE, py_executable)
    _set(FP32_LM_HEAD, "1" if fp32_lm_head else None)
    wanted = {UV_RUN, *names, *([FP32_LM_HEAD] if fp32_lm_head else [])}
    wanted.update(name.strip() for name in os.environ.get(COPIED, "").split(","))
    os.environ[COPIED] = ",".join(sorted(wanted - {""}))


def require_overlay() -> None:
    """Check that this process has, or will import, the overlay's vLLM.

    Raises:
        OverlayError: if the overlay is switched off or not active, a patched module was loaded from
            elsewhere, or vLLM is missing or is not the one that the overlay was built for.
    """
    manifest = load_manifest()
    if not finder.is_switched_on():
        raise OverlayError(
            f"vllm-nemo {manifest.overlay} is switched off: {OVERLAY}=off runs stock vLLM, "
            f"without any patch. Unset {OVERLAY}."
        )
    api.check_process()


def _names(given: Iterable[str] | None) -> list[str]:
    if isinstance(given, str):
        raise TypeError("extra_env_vars must be a list of names, not one string")
    names = [name.strip() for name in given or ()]
    wrong = [name for name in names if not name or "," in name or "=" in name]
    if wrong:
        raise ValueError(f"extra_env_vars has {wrong}, which are not names of variables")
    return names


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
