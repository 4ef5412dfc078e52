"""``python -m vllm_nemo``: the same as the ``vllm-nemo`` command."""

import sys

from vllm_nemo._cli import main

if __name__ == "__main__":
    sys.exit(main())
