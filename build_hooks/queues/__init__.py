"""Patch queues as they lie on disk: their format, the reader of it, and the locks of releases.

::

    releases <- model <- fields <- reader <- lock
"""
