"""Runs the maintainer's commands."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("error: vllm-nemo is built with Python 3.10 or newer, not " + sys.version.split()[0])

from build_hooks.cli import main

sys.exit(main())
