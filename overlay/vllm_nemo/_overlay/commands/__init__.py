"""The commands of ``vllm-nemo``, one module each: its options, its question, its text and JSON.

Each module has ``HELP``, ``add_arguments(parser)`` and ``run(options)``, which prints the answer
and returns the exit status. ``cli`` puts them together.
"""
