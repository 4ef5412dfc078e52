"""Start an engine once, and tell how long each step took, in seconds.

Argument: ``steps``, the names of: the import of vLLM, of ``LLM``, the engine; and of CPU time.
"""

from __future__ import annotations

import itertools
import tempfile
import time

from answers import ARGUMENTS, answer
from models import LLAMA, write

with tempfile.TemporaryDirectory() as scratch:
    model = write(scratch, LLAMA)
    moments = [time.perf_counter()]

    import vllm  # noqa: F401

    moments.append(time.perf_counter())

    from vllm import LLM

    moments.append(time.perf_counter())
    LLM(
        model,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float16",
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=2,
    )
    moments.append(time.perf_counter())
taken = [after - before for before, after in itertools.pairwise(moments)]
answer(dict(zip(ARGUMENTS["steps"], [*taken, time.process_time()], strict=True)))
