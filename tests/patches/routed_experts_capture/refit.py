"""Load other weights into a running engine, and compare captured experts with the kernel's own.

A reload on a CPU need not give the weights that a fresh start gives (vLLM's own affair), so the
measure is what the kernel routes to, not transformers.

Result: ``before`` and ``after``, each with the same prompt's ``captured`` ids
(``[token][layer][k]``) and ``kernel`` ids (``[call][token][k]``, in the order of calls).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROMPT = [7, 201, 33, 90, 15, 118, 4, 77, 160, 2, 54]


def main() -> None:
    first, second = Path.cwd() / "first", Path.cwd() / "second"
    for seed, model in enumerate((first, second)):
        request = json.dumps({"model": str(model), "seed": seed})
        subprocess.run([sys.executable, HERE / "reference.py", request], check=True)

    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(first),
        dtype="float32",
        enable_return_routed_experts=True,
        worker_extension_cls="kernel_probe.KernelProbe",
        **json.loads(sys.argv[1])["engine"],
    )
    sampling = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False)

    def ask() -> dict[str, list]:
        llm.collective_rpc("take_kernel_ids")
        (output,) = llm.generate([{"prompt_token_ids": PROMPT}], sampling, use_tqdm=False)
        (kernel,) = llm.collective_rpc("take_kernel_ids")
        return {"captured": output.outputs[0].routed_experts.tolist(), "kernel": kernel}

    llm.collective_rpc("watch_kernel")
    result = {"before": ask()}
    llm.collective_rpc("reload_weights", kwargs={"weights_path": str(second)})
    result["after"] = ask()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
