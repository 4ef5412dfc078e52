"""Patch queues as they lie on disk: their format, the reader of it, and the locks of releases.

::

    model
    fields, logic, lock
    reader
    stack
"""
