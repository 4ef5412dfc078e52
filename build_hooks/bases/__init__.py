"""The base: the vLLM whose Python sources a build reads. Nothing of it is ever imported or run.

::

    base
    wheel, directory
    installed, index
    cache
    choice
"""
