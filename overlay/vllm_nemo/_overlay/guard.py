"""The second line: vLLM calls this in every process that it starts.

vLLM only logs an entry point of ``vllm.general_plugins`` that fails to load, and goes on without
it, but lets through what the loaded function raises. So importing this module must always work,
and every verdict is given by the call.
"""

from __future__ import annotations

import logging


def check() -> None:
    """Raise OverlayError unless this process runs the overlay or was told not to.

    Raises when a patched module was loaded from anywhere but its served file, when the overlay is
    not active, or when it was not built for the vLLM that is installed. With
    ``NRL_VLLM_OVERLAY=off`` it logs a warning instead. May be called any number of times.
    """
    from vllm_nemo._overlay import api, finder
    from vllm_nemo._overlay.switches import OVERLAY

    if not finder.is_switched_on():
        logging.getLogger("vllm_nemo").warning(
            "%s=off: this process runs stock vLLM, without vllm-nemo's patches.", OVERLAY
        )
        return
    api.check_process()
