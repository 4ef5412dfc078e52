"""Scenario: what vLLM records about the classes of the patched model files."""

import dataclasses
import json
import os
import sys
from pathlib import Path

from vllm.model_executor.models.registry import ModelRegistry, _ModelInfo
from vllm_nemo._overlay import manifest


def main() -> dict[str, object]:
    patched = manifest.load().modules
    infos = {}
    origins = set()
    for architecture, model in ModelRegistry.models.items():
        if getattr(model, "module_name", None) in patched:
            cls = model.load_model_cls()
            infos[architecture] = dataclasses.asdict(_ModelInfo.from_model_cls(cls))
            origins.add(sys.modules[cls.__module__].__file__)
    return {"infos": infos, "origins": sorted(origins)}


if __name__ == "__main__":
    outcome = main()
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(outcome))
