"""The logic of the patches: one module a patch, named by its id with underscores.

A patch's diffs (``overlay/patches/<id>/`` in the source tree) put a few calls into vLLM. These
modules hold what they call, once for all releases. ``shared`` holds what several patches need.
No module imports vLLM or torch when it is imported.
"""
