"""What the maintainer of a queue runs: its state, ports to other releases, and generated pages.

::

    status, merge
    pages, trees
    refresh
    lint, port, bump
"""
