"""The oracle of these scenarios: the head in float64, from the engine's own inputs and weights."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def reference(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return hidden (..., h) times weight (v, h) transposed, in float64 on the CPU."""
    return hidden.cpu().double() @ weight.cpu().double().T


def compare(logits: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    """Compare logits, and the log-probabilities of the whole distribution, with float64."""
    given = logits.cpu()
    difference = (given.double() - expected).abs()
    # As vLLM's sampler does: fp32 whatever the dtype of the logits.
    logprobs = given.float().log_softmax(-1).double()
    return {
        "dtype": str(logits.dtype),
        "logits": {"mean": difference.mean().item(), "max": difference.max().item()},
        "logprobs": distance(logprobs, expected.log_softmax(-1)),
    }


def distance(given: torch.Tensor, expected: torch.Tensor) -> dict[str, float]:
    difference = (given.double() - expected).abs()
    return {"mean": difference.mean().item(), "max": difference.max().item()}


def digest(*tensors: torch.Tensor) -> str:
    """Return a hash of dtypes, shapes and bytes: equal only for tensors that are bit-identical."""
    hashed = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        hashed.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        hashed.update(plain.view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()
