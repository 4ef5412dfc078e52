"""Scenario: look up every import of ``openai`` in vLLM in the client that is installed.

All files of the package are read, as this process would load them (the overlay's copy where the
overlay serves one), and each name that they import from ``openai`` is looked up. Then the modules
that failed on an old client are imported for real.

Arguments: ``patched`` (whether the overlay is switched on).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

from tests.support import vllm_internals

MODULES = (
    "vllm.entrypoints.llm",
    "vllm.tool_parsers",
    "vllm.tool_parsers.utils",
    "vllm.tool_parsers.abstract_tool_parser",
    "vllm.parser.abstract_parser",
    "vllm.reasoning",
    "vllm.entrypoints.openai.chat_completion.serving",
    "vllm.entrypoints.openai.responses.serving",
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.anthropic.serving",
)


def names(tree: ast.AST) -> set[tuple[str, str | None]]:
    found: set[tuple[str, str | None]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module.split(".")[0] == "openai":
                found.update((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(
                (alias.name, None) for alias in node.names if alias.name.split(".")[0] == "openai"
            )
    return found


def is_missing(module: str, name: str | None) -> bool:
    try:
        loaded = importlib.import_module(module)
        if name is not None and not hasattr(loaded, name):
            importlib.import_module(f"{module}.{name}")
    except ImportError:
        return True
    return False


def ours() -> dict:
    """What the overlay's own functions make of this client."""
    from vllm_nemo.patches import openai_namespace_tool

    tool = openai_namespace_tool.namespace_tool()
    refused = {}
    for kind in ("function", "namespace", "shell", "no such type"):
        try:
            openai_namespace_tool.refuse_unknown_tools({"tools": [{"type": kind}]})
        except vllm_internals.VLLMValidationError as error:
            refused[kind] = str(error)
    return {
        "tool": f"{tool.__module__}.{tool.__qualname__}",
        "known": sorted(openai_namespace_tool.known_tools()),
        "refused": refused,
    }


def main() -> None:
    import openai
    import vllm_nemo

    overlay = json.loads(sys.argv[1])["patched"]
    served = Path(vllm_nemo.__file__).parent / "_modules"
    package = Path(importlib.util.find_spec("vllm").origin).parent
    if package.is_relative_to(served):
        package = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
    wanted: dict[tuple[str, str | None], list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package.parent)
        copy = served / relative
        text = (copy if overlay and copy.exists() else path).read_text()
        for name in names(ast.parse(text)) if "openai" in text else ():
            wanted.setdefault(name, []).append(str(relative))
    missing = {
        f"{module}.{name}": files
        for (module, name), files in sorted(wanted.items(), key=str)
        if is_missing(module, name)
    }
    failed = {}
    for module in MODULES:
        try:
            importlib.import_module(module)
        except ImportError as error:
            failed[module] = str(error)
    result = {
        "openai": openai.__version__,
        "names": len(wanted),
        "missing": missing,
        "failed": failed,
        **(ours() if overlay else {}),
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
