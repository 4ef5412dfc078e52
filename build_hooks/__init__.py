"""Builds the overlay wheel: reads a base vLLM, applies the patch queue strictly, emits vllm-nemo.

The hatchling hooks in ``hatch.py`` and the commands of ``python -m build_hooks`` are thin; the
modules beside them do one job each and import one way::

    errors <- diff <- queue <- base, fetch <- assemble <- lock <- manifest, sbom <- plan <- commands
"""
