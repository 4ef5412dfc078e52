"""The bill of materials, held against CycloneDX's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.wheel import from_wheel
from build_hooks.files import sha256
from build_hooks.outputs import sbom
from build_hooks.queues.stack import stack
from tests.support import stand_in
from tests.support.project import content

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay


def bill(directory: Path, release: str, version: str, distribution: str = "vllm") -> str:
    queue = stack(stand_in.write_queue(directory / "overlay"))
    wheel = stand_in.write_wheel(directory, release, distribution=distribution)
    return sbom.dump(content(assemble(queue, from_wheel(wheel)), version))


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
    assert head["diff"]["text"]["content"] == stand_in.PATCHES["head"]["0.25.0"]
    (defect,) = head["resolves"]
    assert defect["id"] == "head"
    assert defect["references"] == ["https://github.com/vllm-project/vllm/pull/8"]
    assert "references" not in sqrt["resolves"][0]


def test_a_patch_that_is_not_needed_is_left_out(made: Overlay) -> None:
    component = json.loads(sbom.dump(content(made, "0.29.0.1")))["metadata"]["component"]
    patches = component["pedigree"]["patches"]
    assert [patch["resolves"][0]["id"] for patch in patches] == ["sqrt", "scale"]
    # Of several variants, the whole diff.
    text = patches[1]["diff"]["text"]["content"]
    assert text.count("+++ b/vllm/") == 2
    assert stand_in.PATCHES["scale"]["0.29.0"] in text


def test_every_served_file_is_a_component_with_its_hash(made: Overlay) -> None:
    components: list[dict[str, Any]] = json.loads(sbom.dump(content(made, "0.29.0.1")))[
        "components"
    ]
    assert {c["name"]: c["hashes"][0]["content"] for c in components} == {
        f"vllm_nemo/_modules/{module.path}": sha256(module.served) for module in made.modules
    }
    assert "vllm_nemo/_modules/vllm/engine/__init__.py" in {c["name"] for c in components}
