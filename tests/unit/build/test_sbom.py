"""The bill of materials, held against CycloneDX's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from build_hooks import assemble, base, queue, sbom
from tests.support import stand_in


def bill(directory: Path, release: str, version: str, distribution: str = "vllm") -> str:
    loaded = queue.load(stand_in.write_queue(directory / "overlay"))
    wheel = stand_in.write_wheel(directory, release, distribution=distribution)
    return sbom.dump(assemble.assemble(loaded, base.from_wheel(wheel)), version)


@pytest.mark.parametrize(
    ("release", "version", "distribution"),
    [
        ("0.25.0", "0.25.0.1", "vllm"),
        ("0.29.0", "0.29.0.1", "vllm"),
        ("0.29.0", "0.29.0.1+unlocked", "acme-vllm"),
        ("0.29.0+cu129", "0.29.0.1", "vllm"),
    ],
)
def test_it_follows_the_schema(
    tmp_path: Path, release: str, version: str, distribution: str
) -> None:
    text = bill(tmp_path, release, version, distribution)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    (ancestor,) = json.loads(text)["metadata"]["component"]["pedigree"]["ancestors"]
    assert (ancestor["name"], ancestor["version"]) == (distribution, release)
    assert ancestor["purl"] == f"pkg:pypi/{distribution}@{release.replace('+', '%2B')}"


def test_it_is_the_same_text_each_time(tmp_path: Path) -> None:
    text = bill(tmp_path / "a", "0.29.0", "0.29.0.1")
    assert bill(tmp_path / "b", "0.29.0", "0.29.0.1") == text
    content = json.loads(text)
    assert "serialNumber" not in content
    assert "timestamp" not in content["metadata"]
    assert str(tmp_path) not in text


def test_it_tells_each_applied_patch_with_its_diff(tmp_path: Path) -> None:
    component = json.loads(bill(tmp_path, "0.26.0", "0.26.0.1"))["metadata"]["component"]
    sqrt, scale, head = component["pedigree"]["patches"]
    assert [patch["type"] for patch in (sqrt, scale, head)] == [
        "unofficial",
        "unofficial",
        "backport",
    ]
    assert scale["diff"]["text"]["content"] == stand_in.PATCHES["scale"]["0.25.0"]
    (defect,) = head["resolves"]
    assert defect["id"] == "head"
    assert defect["references"] == ["https://github.com/vllm-project/vllm/pull/8"]
    assert "references" not in sqrt["resolves"][0]


def test_a_patch_that_is_not_needed_is_left_out(tmp_path: Path) -> None:
    component = json.loads(bill(tmp_path, "0.29.0", "0.29.0.1"))["metadata"]["component"]
    assert [patch["resolves"][0]["id"] for patch in component["pedigree"]["patches"]] == [
        "sqrt",
        "scale",
    ]


def test_every_served_file_is_a_component_with_its_hash(tmp_path: Path) -> None:
    components: list[dict[str, Any]] = json.loads(bill(tmp_path, "0.29.0", "0.29.0.1"))[
        "components"
    ]
    assert [c["name"] for c in components] == [
        "vllm_nemo/_modules/vllm/engine/__init__.py",
        "vllm_nemo/_modules/vllm/models.py",
        "vllm_nemo/_modules/vllm/scaling.py",
    ]
    loaded = queue.load(tmp_path / "overlay")
    wheel = tmp_path / "vllm-0.29.0-py3-none-any.whl"
    made = assemble.assemble(loaded, base.from_wheel(wheel))
    assert [c["hashes"][0]["content"] for c in components] == [
        assemble.sha256(module.served) for module in made.modules
    ]
