"""The one exception of the package."""

from __future__ import annotations


class OverlayError(RuntimeError):
    """The overlay cannot be served as it was built, or does not carry what the caller needs.

    Deliberately not an ImportError: vLLM and its users guard optional imports with ``except
    ImportError``, and would go on with half of the patches.
    """

    # The name under which it is public, in tracebacks and pickles.
    __module__ = "vllm_nemo"
