"""What the device tests share: an environment with a GPU, and the properties of that GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.environment import Environment

PROBE = Path(__file__).parent / "probe.py"


class Gpu:
    """The first GPU of this machine, as the environment's vLLM sees it."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.name: str = found["name"]
        self.capability: tuple[int, int] = tuple(found["capability"])
        self._packages: dict[str, bool] = found["packages"]

    def require(
        self, kernel: str, *, least: tuple[int, int], below: tuple[int, int], packages: list[str]
    ) -> None:
        """Skip the test where the kernel cannot run, and say what it lacks."""
        if not least <= self.capability < below:
            needed = f"at least {dotted(least)} and below {dotted(below)}"
            pytest.skip(
                f"{kernel} needs compute capability {needed}; {self.name} has "
                f"{dotted(self.capability)}"
            )
        missing = [name for name in packages if not self._packages[name]]
        if missing:
            pytest.skip(f"{kernel} needs packages that are missing: {', '.join(missing)}")


def dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def probe(environment: Environment) -> dict[str, Any]:
    return environment.scenario(PROBE, overlay=True).ok()


@pytest.fixture
def gpu_env(vllm_env: Environment) -> Environment:
    """Give the environment, if its vLLM runs on a GPU of this machine."""
    found = probe(vllm_env)
    if not found["usable"]:
        pytest.skip(f"no CUDA for vLLM {vllm_env.release}: {found['found']}")
    return vllm_env


@pytest.fixture
def gpu(gpu_env: Environment) -> Gpu:
    return Gpu(probe(gpu_env))
