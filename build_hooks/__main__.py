"""Runs the maintainer's commands."""

import sys

from build_hooks.cli import main

sys.exit(main())
