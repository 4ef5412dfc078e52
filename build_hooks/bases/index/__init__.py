"""The package index, asked the way the user's own pip is set up.

::

    session, pip, published
    parts
"""
