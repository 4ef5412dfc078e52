"""Scenario: where vLLM's patched modules come from, and what vLLM makes of them.

Arguments: ``bypassed`` (a finder in front of the overlay's serves stock modules), ``registry``
(also look in the process that vLLM starts to inspect a model class).

Result: ``origins`` (the file of each patched module), ``failed`` (the modules that this machine
cannot import), ``error`` (what vLLM's plugin loading raises, or an import before it), ``served``
(the overlay's files), ``infos`` (what vLLM records about the model classes in these modules),
``registry`` (the first two in that process).
"""

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Collection
from importlib.machinery import PathFinder
from pathlib import Path

from vllm_nemo import OverlayError
from vllm_nemo._overlay import manifest

from tests.support import vllm_internals


def origins() -> dict[str, str | None]:
    """Import the patched modules and tell the file of each, None if this machine cannot."""
    found: dict[str, str | None] = {}
    for name in manifest.load_manifest().modules:
        try:
            found[name] = str(importlib.import_module(name).__file__)
        # A module for another platform, or for another kind of CPU.
        except (ImportError, AttributeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            found[name] = None
    return found


def attempt(call: object) -> str | None:
    """Call a function; return its exception as text, None without one."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


def look(found: dict[str, str | None]) -> dict[str, object]:
    return {
        "origins": {name: origin for name, origin in found.items() if origin},
        "failed": sorted(name for name, origin in found.items() if origin is None),
    }


def infos(modules: Collection[str]) -> dict[str, dict[str, object]]:
    """Return what vLLM records about the model classes in some modules."""
    from vllm import ModelRegistry

    return {
        architecture: dataclasses.asdict(
            vllm_internals.model_class_information(model.load_model_cls())
        )
        for architecture, model in ModelRegistry.models.items()
        if getattr(model, "module_name", None) in modules
    }


def main() -> dict[str, object]:
    arguments = json.loads(sys.argv[1])
    if arguments["bypassed"]:
        sys.meta_path.insert(0, PathFinder)
    try:
        result = look(origins())
        result["infos"] = infos(result["origins"])
        result["error"] = attempt(vllm_internals.load_general_plugins)
    except OverlayError as error:
        # Before the guard has its turn: vLLM looked for a module that is not there (since 0.32.0 an
        # optional compiled one), and that search comes to the overlay.
        there = {name: sys.modules.get(name) for name in manifest.load_manifest().modules}
        result = look({name: module and str(module.__file__) for name, module in there.items()})
        result |= {"infos": {}, "error": f"{type(error).__name__}: {error}"}
    if arguments["registry"]:
        result["registry"] = look(vllm_internals.run_in_registry_process(origins))
    wheel = manifest.load_manifest()
    result["served"] = {name: str(wheel.served_file(m)) for name, m in wheel.modules.items()}
    return result


if __name__ == "__main__":
    outcome = main()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcome))
