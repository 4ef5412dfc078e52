"""Scenario: what vLLM records about the classes of the patched model files."""

import dataclasses
import json
import os
import sys
from pathlib import Path

from vllm import ModelRegistry
from vllm_nemo._overlay import manifest

from tests.support import vllm_internals


def main() -> dict[str, object]:
    patched = manifest.load_manifest().modules
    infos = {}
    origins = set()
    for architecture, model in ModelRegistry.models.items():
        if getattr(model, "module_name", None) in patched:
            cls = model.load_model_cls()
            infos[architecture] = dataclasses.asdict(vllm_internals.model_class_information(cls))
            origins.add(sys.modules[cls.__module__].__file__)
    return {"infos": infos, "origins": sorted(origins)}


if __name__ == "__main__":
    outcome = main()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcome))
