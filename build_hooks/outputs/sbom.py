"""The bill of materials: CycloneDX 1.6, the base as ancestor, each patch with its diff.

It goes to ``.dist-info/sboms/`` (PEP 770). It has neither a serial number nor a time stamp: the
same base and queue give the same bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from build_hooks.files import sha256
from build_hooks.shared import outcomes

if TYPE_CHECKING:
    from build_hooks.outputs.content import Content
    from build_hooks.queues.model import Patch, ReleaseDiff

_LICENCES = [{"license": {"id": "Apache-2.0"}}]


def dump(content: Content) -> str:
    """Write the bill of materials of one overlay, the same text for the same build.

    Args:
        content: What the wheel is made of.

    Returns:
        The text, JSON of CycloneDX 1.6.
    """
    overlay, version = content.overlay, content.identity.version
    base = overlay.base
    data = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "vllm-nemo",
                "name": "vllm-nemo",
                "version": version,
                "purl": f"pkg:pypi/vllm-nemo@{_quote(version)}",
                "licenses": _LICENCES,
                "properties": [
                    {
                        "name": f"vllm-nemo:queue:{queue.name}",
                        "value": f"revision {queue.revision}, sha256 {queue.digest}",
                    }
                    for queue in overlay.stack.queues
                ],
                "pedigree": {
                    "ancestors": [
                        {
                            "type": "library",
                            "name": base.distribution,
                            "version": str(base.version),
                            "purl": f"pkg:pypi/{base.distribution}@{_quote(str(base.version))}",
                            "licenses": _LICENCES,
                        }
                    ],
                    "patches": [
                        _patch(outcome.patch, outcome.diff)
                        for outcome in overlay.outcomes
                        if outcome.outcome == outcomes.APPLIED and outcome.diff is not None
                    ],
                },
            }
        },
        "components": [
            {
                "type": "file",
                "bom-ref": file.path,
                "name": f"vllm_nemo/_modules/{file.path}",
                "hashes": [{"alg": "SHA-256", "content": sha256(file.served)}],
            }
            for file in overlay.files
        ],
    }
    return json.dumps(data, indent=2) + "\n"


def _patch(patch: Patch, diff: ReleaseDiff) -> dict[str, Any]:
    fixed = any(reference.fixed_in for reference in patch.upstream)
    defect = {
        "type": "defect",
        "id": patch.id,
        "name": patch.title,
        "description": patch.why,
        "references": [reference.url for reference in patch.upstream],
    }
    if not patch.upstream:
        del defect["references"]
    return {
        "type": "backport" if fixed else "unofficial",
        "diff": {"text": {"contentType": "text/x-patch", "content": diff.text.decode()}},
        "resolves": [defect],
    }


def _quote(version: str) -> str:
    return version.replace("+", "%2B")
