"""Applies a queue to a base: every module that is served, and what became of each patch.

::

    place
    places
    tree
    assemble
"""
