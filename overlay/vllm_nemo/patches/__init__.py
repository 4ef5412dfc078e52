"""The logic of the patches: one module a patch, named by its id with underscores.

A patch's diffs (``overlay/patches/<id>/`` in the source tree) put a few calls into vLLM, and these
modules hold what is called, once for all releases. ``shared`` holds what several patches need.
No module imports vLLM or torch when it is imported.
"""
