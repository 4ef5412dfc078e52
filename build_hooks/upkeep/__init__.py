"""What the maintainer of a queue runs: its state, ports to other releases, and generated pages.

::

    status <- pages, lint;  refresh <- port
"""
