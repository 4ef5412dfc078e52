"""What the maintainer of a queue runs: its state, ports to other releases, and generated pages.

::

    status, merge
    pages, trees, infer, reviews
    refresh
    lint, port, bump
"""
