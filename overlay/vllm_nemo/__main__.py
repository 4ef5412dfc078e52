"""``python -m vllm_nemo``: the same as the ``vllm-nemo`` command."""

import sys

from vllm_nemo._overlay.cli import main

if __name__ == "__main__":
    sys.exit(main())
