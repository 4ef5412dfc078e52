"""The one exception of the package."""

from __future__ import annotations

import vllm_nemo


class OverlayError(RuntimeError):
    """The overlay cannot be served as it was built, or does not carry what the caller needs.

    Deliberately not an ImportError: vLLM and its users guard optional imports with ``except
    ImportError``, and would go on with half of the patches.
    """

    # The name under which it is public, in tracebacks and pickles.
    __module__ = "vllm_nemo"


if not hasattr(vllm_nemo, "activate"):
    # Without its first module the package is a namespace, which activates nothing. Whatever of the
    # machinery is asked nevertheless imports this module first.
    raise OverlayError(
        f"vllm_nemo/__init__.py is missing in {', '.join(vllm_nemo.__path__)}, so that no process "
        "runs the overlay.\n"
        "Reinstall the overlay: pip install --force-reinstall --no-deps vllm-nemo"
    )
