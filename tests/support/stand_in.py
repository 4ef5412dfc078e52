"""A small stand-in for vLLM in several releases, and a small queue for it.

For everything about the build that does not need vLLM itself. The sources move between releases
as vLLM's do: lines come above what is patched, a neighbour changes, a fix arrives upstream.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RELEASES = ("0.25.0", "0.26.0", "0.29.0")

_MODELS = """\
# SPDX-License-Identifier: Apache-2.0
import math
{imports}

class Model:
    def forward(self, x):
        return math.sqrt(x)

    def scale(self, x):
        {comment}
        return 2 * x


class Head:
    def forward(self, x):
        return {head}
"""

_ENGINE = """\
from vllm.models import Model


def run(x):
    return Model().forward(x)


if __name__ == "__main__":
    run(1)
"""


def sources(release: str, **changes: str | None) -> dict[str, str]:
    """Return the files of a release by path.

    ``changes``: modules with another text, or None for one that is not there; ``engine/__init__``
    stands for ``vllm/engine/__init__.py``.
    """
    public, _, _ = release.partition("+")
    newer = public != "0.25.0"
    imports = "import os\nimport re\n\nUNUSED = os, re\n" if newer else ""
    newest = public == "0.29.0"
    files = {
        "vllm/__init__.py": "",
        "vllm/_version.py": f'__version__ = version = "{release}"\n',
        "vllm/models.py": _MODELS.format(
            imports=imports,
            comment="# Twice." if newest else "# Doubles.",
            head="float(x)" if newest else "x",
        ),
        "vllm/engine/__init__.py": _ENGINE,
        "vllm/data.json": "{}\n",
    }
    changed = files | {f"vllm/{name}.py": text for name, text in changes.items()}
    return {path: text for path, text in changed.items() if text is not None}


# The queue. "sqrt" changes a module and a package in all releases, at offsets; "scale" adds a
# module, and needs a second variant of another; "head" is upstream since 0.29.0.
PATCHES: dict[str, dict[str, str]] = {
    "sqrt": {
        "0.25.0": """\
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -6,3 +6,3 @@
     def forward(self, x):
-        return math.sqrt(x)
+        return math.sqrt(abs(x))
\x20
--- a/vllm/engine/__init__.py
+++ b/vllm/engine/__init__.py
@@ -4,2 +4,3 @@
 def run(x):
+    x = float(x)
     return Model().forward(x)
"""
    },
    "scale": {
        "0.25.0": """\
--- /dev/null
+++ b/vllm/scaling.py
@@ -0,0 +1,1 @@
+FACTOR = 3
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -10,3 +10,5 @@
         # Doubles.
-        return 2 * x
+        from vllm.scaling import FACTOR
+
+        return FACTOR * x
\x20
""",
        "0.29.0": """\
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -14,3 +14,5 @@
         # Twice.
-        return 2 * x
+        from vllm.scaling import FACTOR
+
+        return FACTOR * x
\x20
""",
    },
    "head": {
        "0.25.0": """\
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -17,2 +17,2 @@
     def forward(self, x):
-        return x
+        return float(x)
"""
    },
}

FIELDS: dict[str, dict[str, Any]] = {
    "sqrt": {},
    "scale": {
        "switch": "NRL_VLLM_SCALE",
        "notes": {"0.29.0": "Read the new comment."},
        "upstream": [{"kind": "issue", "ref": "vllm-project/vllm#7"}],
    },
    "head": {
        "vllm": ">=0.25.0,<0.29",
        "not-needed": {"0.29.0": "Upstream returns a float."},
        "upstream": [
            {
                "kind": "pull",
                "ref": "vllm-project/vllm#8",
                "note": "does the same",
                "fixed-in": "0.29.0",
            }
        ],
    },
}


def write(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by path; text goes out as it is."""
    for path, content in files.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory


def record(files: Mapping[str, str | bytes]) -> str:
    """Return the lines of a RECORD, with hashes, as installers write them."""
    lines = []
    for path, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join(lines)


def wheel_files(
    files: Mapping[str, str | bytes], version: str, distribution: str = "vllm"
) -> dict[str, str | bytes]:
    """Return what a wheel with these files holds."""
    info = f"{distribution.replace('-', '_')}-{version}.dist-info"
    return {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/LICENSE": "The stand-in's licence.\n",
        f"{info}/RECORD": record(files),
    }


def write_wheel(
    directory: Path,
    version: str,
    *,
    files: Mapping[str, str | bytes] | None = None,
    distribution: str = "vllm",
) -> Path:
    """Write a wheel of the stand-in, by default with the sources of that release."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{distribution.replace('-', '_')}-{version}-py3-none-any.whl"
    content = sources(version) if files is None else files
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in wheel_files(content, version, distribution).items():
            # A fixed date: the wheel's own hash is in its lock.
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def toml(table: Mapping[str, Any]) -> str:
    """Write a patch.toml: texts, tables of texts, lists of such tables."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if not _is_table(v)]
    for key, value in table.items():
        if _is_table(value):
            tables = value if isinstance(value, list) else [value]
            brackets = "[[{}]]" if isinstance(value, list) else "[{}]"
            for entry in tables:
                lines.append(brackets.format(key))
                lines += [f"{_key(k)} = {_value(v)}" for k, v in entry.items()]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)
    )


def _key(key: str) -> str:
    return json.dumps(key)


def _value(value: object) -> str:
    # Of what a queue holds, TOML and JSON write the same way.
    return json.dumps(value)


def write_patch(overlay: Path, name: str, diffs: Mapping[str, str | bytes], **fields: Any) -> Path:
    """Write one patch; fields replace or add to those of a plain one, None takes one away."""
    table: dict[str, Any] = {
        "title": f"Title of {name}",
        "why": "What breaks without it.",
        "risk": "What goes wrong.",
        "removal": "When it can go.",
        "vllm": ">=0.25.0",
        "switch": "always",
    }
    table |= {key.replace("_", "-"): value for key, value in fields.items()}
    table = {key: value for key, value in table.items() if value is not None}
    home = overlay / "patches" / name
    return write(
        home,
        {
            "patch.toml": toml(table),
            **{f"{release}.patch": text for release, text in diffs.items()},
        },
    )


def write_series(overlay: Path, patches: list[str], releases: tuple[str, ...] = RELEASES) -> None:
    table = {"releases": list(releases), "revision": 1, "patches": patches}
    write(overlay, {"series.toml": toml(table)})


def write_queue(overlay: Path) -> Path:
    """Write the whole small queue."""
    write_series(overlay, list(PATCHES))
    for name, diffs in PATCHES.items():
        write_patch(overlay, name, diffs, **FIELDS[name])
    return overlay
