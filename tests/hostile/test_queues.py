"""Wheels with other queues, or with a part of ours: pip and uv tell them from ours."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import source, stand_in
from tests.support.installers import NEW, Environment

# A line behind the one that a patch of ours has put in.
DIFF = """\
--- a/vllm/engine/__init__.py
+++ b/vllm/engine/__init__.py
@@ -6,2 +6,4 @@
     return Model().forward(x)
+
+ACME = {number}
\x20
"""
OURS = f"{NEW}.1"
ACME = "import vllm.engine; print(getattr(vllm.engine, 'ACME', None))"


def _queue(root: Path, revision: int) -> Path:
    series = {"name": "acme", "revision": revision, "releases": [NEW], "patches": ["acme-one"]}
    files = {
        "series.toml": stand_in.toml(series),
        "patches/acme-one/patch.toml": stand_in.toml({"title": "One", "vllm": f">={NEW}"}),
        f"patches/acme-one/{NEW}.patch": DIFF.format(number=revision),
        "python/acme_logic/__init__.py": f"REVISION = {revision}\n",
    }
    return stand_in.write(root / f"acme-{revision}", files)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with our overlay, two revisions of another queue on top, and a part."""
    root = tmp_path_factory.mktemp("queues")
    tree = source.make(root)
    made = root / "wheels"
    made.mkdir()
    shutil.copy(tree.wheel(NEW), made)
    tree.build("python -m build_hooks", made)
    for revision, front_end in ((3, "plain"), (4, "uv build --wheel")):
        tree.build(front_end, made, env={"NRL_VLLM_QUEUE": str(_queue(root, revision))})
    # Not in the index: an upgrade takes the local part that is the last in the alphabet.
    tree.build("plain", root / "part", env={"NRL_VLLM_PATCHES": "-sqrt"})
    (subset,) = (root / "part").iterdir()
    assert re.fullmatch(rf"vllm_nemo-{OURS}\+subset\.[0-9a-f]{{8}}-py3-none-any\.whl", subset.name)
    return made


@pytest.fixture(params=["pip", "uv"])
def env(request: pytest.FixtureRequest, tmp_path: Path, wheels: Path) -> Environment:
    return Environment(tmp_path / "env", request.param, wheels)


def _told(env: Environment, command: str) -> Any:
    process = env.interpreter.run("-m", "vllm_nemo", command, "--json")
    assert process.returncode == 0, process.stdout
    return json.loads(process.stdout)


def test_each_wheel_replaces_the_other_and_is_told_from_it(env: Environment, wheels: Path) -> None:
    env.install(f"vllm-nemo==={OURS}")
    assert env.interpreter.prints("-c", ACME) == "None"
    assert [queue["name"] for queue in _told(env, "patches")["queues"]] == ["nemo"]

    # Not "already satisfied".
    env.install(f"vllm-nemo=={OURS}+acme.3")
    assert env.interpreter.prints("-c", ACME) == "3"
    assert env.holds()
    assert env.consistent()
    queues = _told(env, "patches")["queues"]
    assert [(queue["name"], queue["revision"]) for queue in queues] == [("nemo", 1), ("acme", 3)]
    (check,) = [c for c in _told(env, "doctor")["checks"] if c["name"] == "queues"]
    assert f"acme 3 (sha256 {queues[1]['digest'][:12]}, not locked)" in check["detail"]

    # The queue's own package is a part of what was built.
    package = env.interpreter.file("acme_logic/__init__.py")
    text = package.read_text()
    package.write_text("REVISION = 5\n")
    assert not env.holds()
    package.write_text(text)
    assert env.holds()

    env.install(f'--upgrade "vllm-nemo=={NEW}.*"')
    assert env.interpreter.prints("-c", ACME) == "4"

    (subset,) = (wheels.parent / "part").iterdir()
    env.install(str(subset))
    patches = {patch["id"]: patch["outcome"] for patch in _told(env, "patches")["patches"]}
    assert patches == {"scale": "applied", "head": "not-needed"}
    assert "nemo 1" in env.interpreter.prints("-m", "vllm_nemo", "patches")
    assert "not all of its patches" in env.interpreter.prints("-m", "vllm_nemo", "doctor")

    # And ours again, which no other wheel of that number keeps out.
    env.install(f"vllm-nemo==={OURS}")
    assert env.interpreter.prints("-c", ACME) == "None"
    assert env.holds()
    assert env.consistent()
