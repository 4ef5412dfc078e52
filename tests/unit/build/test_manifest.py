"""The manifest, read back by the run-time package that it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay import manifest as read_back

from build_hooks.files import sha256
from build_hooks.outputs import manifest
from tests.support.project import content

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay


def test_it_tells_base_modules_and_patches(made: Overlay) -> None:
    data = json.loads(
        manifest.dump(
            content(made, "0.29.0.1+unlocked", locked=False),
            {"vllm_nemo/b.py": b"2", "a.pth": b"1"},
        )
    )
    assert data["overlay"] == "0.29.0.1+unlocked"
    assert data["base"] == {
        "distribution": "vllm",
        "version": "0.29.0",
        "release": "0.29.0",
        "locked": False,
    }
    assert list(data["files"].items()) == [
        ("a.pth", sha256(b"1")),
        ("vllm_nemo/b.py", sha256(b"2")),
    ]
    by_path = {module.path: module for module in made.modules}
    assert data["modules"]["vllm.engine"] == {
        "path": "vllm/engine/__init__.py",
        "package": True,
        "stock": sha256(by_path["vllm/engine/__init__.py"].stock or b""),
        "served": sha256(by_path["vllm/engine/__init__.py"].served),
        "patches": ["sqrt"],
    }
    assert data["modules"]["vllm.scaling"]["stock"] is None
    sqrt, scale, head = data["patches"]
    assert sqrt["offsets"] == {"vllm/engine/__init__.py": [0], "vllm/models.py": [4]}
    assert scale == {
        "id": "scale",
        "queue": "nemo",
        "title": "Title of scale",
        "outcome": "applied",
        "reason": "",
        "note": "Read the new comment.",
        "variant": "0.29.0",
        "switch": "NRL_VLLM_SCALE",
        "files": ["vllm/models.py", "vllm/scaling.py"],
        "offsets": {"vllm/models.py": [0], "vllm/scaling.py": [0]},
        "upstream": [{"kind": "issue", "ref": "vllm-project/vllm#7", "note": ""}],
    }
    assert (head["outcome"], head["variant"], head["files"]) == ("not-needed", None, [])
    assert head["upstream"] == [
        {
            "kind": "pull",
            "ref": "vllm-project/vllm#8",
            "note": "does the same",
            "fixed-in": "0.29.0",
        }
    ]


def test_the_run_time_package_reads_it(made: Overlay, tmp_path: Path) -> None:
    """Writer and reader agree on the format."""
    (tmp_path / "manifest.json").write_text(
        manifest.dump(content(made, "0.29.0.1"), {"a.pth": b"1"})
    )
    read = read_back.read(tmp_path)
    assert [(p.id, p.outcome) for p in read.patches] == [
        (o.patch.id, o.outcome) for o in made.outcomes
    ]
    assert read.own == {"a.pth": sha256(b"1")}
    assert {m.path: m.served for m in read.modules.values()} == {
        m.path: sha256(m.served) for m in made.modules
    }
