"""Scenario: which files vLLM's patched modules come from, and what vLLM's plugin loading says.

Argument ``how``: "plain" (import, then load the plugins), "bypassed" (a finder in front of the
overlay's serves stock modules), "removed" (the overlay's finder is taken away before vLLM is
imported), "registry" (in the process that vLLM starts to look at a model class).
"""

import importlib
import json
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import vllm_nemo
from vllm_nemo._overlay import manifest


def origins() -> dict[str, str | None]:
    """Import the patched modules and tell the file of each, None if this machine cannot."""
    found: dict[str, str | None] = {}
    for name in manifest.load().modules:
        try:
            found[name] = str(importlib.import_module(name).__file__)
        # A module for another platform, or for kernels that vLLM has for other CPUs only.
        except (ImportError, AttributeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            found[name] = None
    return found


def attempt(call: object) -> str | None:
    """Call and return the exception it ends in."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


def main() -> dict[str, object]:
    how = json.loads(sys.argv[1])["how"]
    if how == "bypassed":
        sys.meta_path.insert(0, PathFinder)
    elif how == "removed":
        sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, vllm_nemo.OverlayFinder)]
    if how == "registry":
        from vllm.model_executor.models import registry

        found, error = registry._run_in_subprocess(origins), None
    else:
        from vllm.plugins import load_general_plugins

        found, error = origins(), attempt(load_general_plugins)
    wheel = manifest.load()
    served = {name: str(wheel.served_file(m)) for name, m in wheel.modules.items()}
    imported = {name: origin for name, origin in found.items() if origin}
    failed = sorted(found.keys() - imported.keys())
    return {"origins": imported, "failed": failed, "error": error, "served": served}


if __name__ == "__main__":
    outcome = main()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcome))
