"""The check that vLLM calls in every process that it starts.

vLLM only logs an entry point of ``vllm.general_plugins`` that fails to load, and goes on without
it, but does not catch what the loaded function raises. So importing this module must always work,
and every error is raised by the call.
"""

from __future__ import annotations

import logging


def check() -> None:
    """Check that this process runs the overlay, unless it was told not to.

    With ``NRL_VLLM_OVERLAY=off`` it logs a warning instead. It may be called any number of times.

    Raises:
        OverlayError: if a patched module was loaded from anywhere but its served file, the overlay
            is not active, or it was not built for the vLLM that is installed.
    """
    from vllm_nemo._overlay import api, finder
    from vllm_nemo._overlay.switches import OVERLAY

    if not finder.is_switched_on():
        logging.getLogger("vllm_nemo").warning(
            "%s=off: this process runs stock vLLM, without vllm-nemo's patches.", OVERLAY
        )
        return
    api.check_process()
