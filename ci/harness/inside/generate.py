"""Runs inside an image: a tiny random model in a real engine; prints a line of JSON.

Its argument is a JSON object: arguments of ``LLM``.

Whether the head computed in fp32 shows in what the engine returns: logits that were rounded to half
precision often agree between two tokens of a vocabulary of 8192, those in fp32 hardly ever.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

VOCABULARY = 8192
TOKENS = 8


def main() -> None:
    """Generate, and tell what came out and which file the engine's process served."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from vllm import LLM, SamplingParams

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    with tempfile.TemporaryDirectory() as directory:
        # Not bfloat16: vLLM's attention in that dies on a CPU whose AMX nobody has set up yet.
        LlamaForCausalLM(config).to(torch.float16).save_pretrained(directory)
        llm = LLM(model=directory, **json.loads(sys.argv[1]))
    sampling = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=-1, detokenize=False
    )
    (output,) = llm.generate({"prompt_token_ids": [1, 2, 3]}, sampling, use_tqdm=False)
    completion = output.outputs[0]
    (engine,) = llm.collective_rpc(_where)
    print(
        json.dumps(
            {
                "tokens": len(completion.token_ids),
                "vocabulary": len(completion.logprobs[0]),
                "values": len({entry.logprob for entry in completion.logprobs[0].values()}),
                "file": engine["file"],
                "own process": engine["process"] != os.getpid(),
                "user": os.getuid(),
                "read-only": engine["read-only"],
            }
        ),
        flush=True,
    )


def _where(_worker: object) -> dict[str, object]:
    import os
    import sys

    file = sys.modules["vllm.config.model"].__file__ or ""
    read_only = bool(os.statvfs(file).f_flag & os.ST_RDONLY)
    return {"file": file, "process": os.getpid(), "read-only": read_only}


if __name__ == "__main__":
    main()
