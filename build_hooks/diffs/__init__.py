"""Unified diffs, as text alone: a strict reader, a strict applier, and a writer of minimal ones.

Nothing here knows of queues or of vLLM.

::

    model, paths
    reader, applier, owners
    writer
"""
