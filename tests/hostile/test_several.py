"""More than one vLLM or overlay on ``sys.path``: a clone, a ``--target``, a user's own, conda."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import hostile, installed, prefixes

WHERE = "import vllm.models, vllm_nemo; print(vllm.models.ORIGIN, vllm_nemo.__file__)"
EDITED = installed.STOCK | {"vllm/models.py": "ORIGIN = 'clone'\n"}


@pytest.fixture(scope="session")
def conda(tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    """Give an environment as conda makes them: a Python with a prefix of its own."""
    root = tmp_path_factory.mktemp("conda")
    environment = prefixes.python(root / "envs" / "rl")
    (environment.root / "conda-meta").mkdir()
    prefixes.install(environment, prefixes.vllm_wheel(root), installed.wheel())
    return environment


def _doctor(environment: installed.Interpreter, **options: Any) -> tuple[int, dict[str, Any]]:
    process = environment.run("-m", "vllm_nemo", "doctor", "--json", **options)
    checks = json.loads(process.stdout)["checks"]
    return process.returncode, {check["name"]: check for check in checks}


def _clone(root: Path, files: dict[str, str]) -> Path:
    installed.write(root, {path: text for path, text in files.items() if "_version" not in path})
    return root


def _hides(error: str, directory: Path, other: Path) -> bool:
    """Tell whether a message names the directory to take away, before any other remedy."""
    text = re.sub(r"\s+", " ", error)
    first = f"vLLM at {directory / 'vllm'} hides the one at {other}"
    return first in text and text.index(first) < text.index("pip install")


def test_a_clone_on_pythonpath_is_refused_and_said_to_hide_the_installed_one(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    clone = _clone(tmp_path / "clone", EDITED)
    env = {"PYTHONPATH": str(clone)}
    error = conda.fails("-c", WHERE, env=env)
    assert "changed: vllm/models.py" in error
    assert _hides(error, clone, conda.file("vllm"))
    status, checks = _doctor(conda, env=env)
    assert status == 1
    assert _hides(checks["vllm"]["detail"], clone, conda.file("vllm"))
    # The script has it from the variable as well.
    path = {"PATH": f"{conda.root}/bin:/usr/bin:/bin"}
    typed = hostile.run(["vllm"], env=env | path)
    assert typed.returncode == 1
    assert _hides(typed.stderr, clone, conda.file("vllm"))
    # Taken away, all is well.
    assert conda.prints("-c", WHERE).startswith("served ")


def test_the_current_directory_is_a_clone(tmp_path: Path, conda: installed.Interpreter) -> None:
    clone = _clone(tmp_path / "clone", EDITED)
    assert _hides(conda.fails("-c", WHERE, cwd=clone), clone, conda.file("vllm"))
    status, checks = _doctor(conda, cwd=clone)
    assert status == 1
    assert checks["vllm"]["state"] == "fail"
    # A script does not look there, so `vllm` on PATH is another matter.
    assert "loads vLLM 0.29.0 at" in checks["commands"]["detail"]
    path = {"PATH": f"{conda.root}/bin:/usr/bin:/bin"}
    assert hostile.prints(["vllm"], env=path, cwd=clone) == f"{conda.root} served"


def test_a_current_directory_that_is_gone_hides_no_message(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    clone = _clone(tmp_path / "clone", EDITED)
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    words = ["sh", "-c", script, "sh", conda.python, "-c", WHERE]
    process = hostile.run(words, env={"PYTHONPATH": str(clone)}, cwd=tmp_path)
    assert process.returncode == 1
    assert _hides(process.stderr, clone, conda.file("vllm"))


def test_a_clone_with_the_files_of_the_base_is_served(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    clone = _clone(tmp_path / "clone", installed.STOCK)
    env = {"PYTHONPATH": str(clone)}
    code = "import sys, types; sys.modules['vllm._version'] = types.SimpleNamespace(__version__='')"
    assert conda.prints("-c", f"{code}\n{WHERE}", env=env).startswith("served ")
    status, checks = _doctor(conda, env=env)
    assert (status, checks["copies"]["state"]) == (0, "warn")
    assert str(clone / "vllm") in checks["copies"]["detail"]


def test_without_another_vllm_nothing_is_said_to_be_hidden(own_vllm: installed.Interpreter) -> None:
    own_vllm.file("vllm/models.py").write_text("edited")
    error = own_vllm.fails("-c", WHERE)
    assert "changed: vllm/models.py" in error
    assert "hides" not in error


@pytest.fixture
def own_vllm(tmp_path: Path) -> installed.Interpreter:
    return installed.install(tmp_path / "env")


def test_a_second_overlay_by_target_is_whole_and_warned_of(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    target = tmp_path / "target"
    installed.write_overlay(target)
    env = {"PYTHONPATH": str(target)}
    served = f"served {target / 'vllm_nemo' / '__init__.py'}"
    assert conda.prints("-c", WHERE, env=env) == served
    # Without the variable, as in the workers of a service, it is the environment's.
    assert conda.prints("-c", WHERE).startswith(f"served {conda.site_packages}")
    status, checks = _doctor(conda, env=env)
    assert (status, checks["copies"]["state"]) == (0, "warn")
    assert f"{target / 'vllm_nemo'}, {conda.file('vllm_nemo')}" in checks["copies"]["detail"]
    # What differs is what is used: one overlay's code never serves the other one's files.
    (target / "vllm_nemo" / "_modules" / "vllm" / "models.py").write_text("ORIGIN = 'edited'\n")
    assert "is changed since it was built" in conda.fails("-c", WHERE, env=env)
    assert _doctor(conda, env=env)[0] == 1
    assert conda.prints("-c", WHERE).startswith("served ")


def test_an_overlay_of_another_release_by_target_is_refused(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    target = tmp_path / "target"
    installed.write_overlay(target)
    manifest = target / "vllm_nemo" / "manifest.json"
    data = json.loads(manifest.read_text())
    data["modules"]["vllm.models"]["stock"] = "0" * 64
    manifest.write_text(json.dumps(data))
    env = {"PYTHONPATH": str(target)}
    assert "does not match it" in conda.fails("-c", WHERE, env=env)
    assert _doctor(conda, env=env)[0] == 1


def test_a_conda_environment_sees_what_a_user_has(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    # conda's Pythons read ~/.local, which comes first.
    base = {"PYTHONUSERBASE": str(tmp_path)}
    ask = "import site; print(site.getusersitepackages())"
    site = Path(conda.prints("-c", ask, env=base))
    installed.write_vllm(site, EDITED, version="0.28.0")
    error = conda.fails("-c", WHERE, env=base)
    assert _hides(error, site, conda.file("vllm"))
    assert _doctor(conda, env=base)[0] == 1
    assert conda.prints("-s", "-c", WHERE, env=base).startswith("served ")
    shutil.rmtree(site)
    assert conda.prints("-c", WHERE, env=base).startswith("served ")


def test_a_conda_environment_that_is_not_activated(
    tmp_path: Path, conda: installed.Interpreter
) -> None:
    # `conda run`, a job's script: the base's `vllm` on PATH, the environment's Python by its path.
    base = prefixes.python(tmp_path / "conda")
    prefixes.install(base, prefixes.vllm_wheel(tmp_path))
    path = {"PATH": f"{base.root}/bin:/usr/bin:/bin"}
    assert hostile.prints(["vllm"], env=path) == f"{base.root} stock"
    status, checks = _doctor(conda, env=path)
    assert (status, checks["commands"]["state"]) == (1, "fail")
    assert f"put {conda.root}/bin first on PATH" in checks["commands"]["detail"]
    both = {"PATH": f"{conda.root}/bin:{path['PATH']}"}
    assert _doctor(conda, env=both)[0] == 0
