"""The command that users type: the doctor follows ``vllm`` on PATH to the Python that it runs.

Each layout is a real one: a Python of an image, virtual environments on top of it, uv's tools and
pipx's, with commands that uv and pip have written. Each test first types the command.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.support import hostile, installed, prefixes

STOCK, SERVED = "stock", "served"


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with the wheels of vLLM and of the overlay."""
    directory = tmp_path_factory.mktemp("wheels")
    prefixes.vllm_wheel(directory)
    shutil.copy(installed.wheel(), directory)
    return directory


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, vllm: Path) -> installed.Interpreter:
    """Give the Python of an image, with stock vLLM; no test changes it."""
    base = prefixes.python(tmp_path_factory.mktemp("image") / "usr")
    prefixes.install(base, *vllm.glob("vllm-*.whl"))
    return base


@pytest.fixture(scope="session")
def venv(
    tmp_path_factory: pytest.TempPathFactory, image: installed.Interpreter
) -> installed.Interpreter:
    """Give an environment on top of the image's Python that has the overlay, and not vLLM."""
    environment = prefixes.on_top(image, tmp_path_factory.mktemp("venv") / "venv")
    prefixes.install(environment, installed.wheel())
    return environment


@pytest.fixture
def whole(tmp_path: Path, vllm: Path) -> installed.Interpreter:
    """Give an environment with vLLM and the overlay that the test may change."""
    environment = installed.make(tmp_path / "env")
    prefixes.install(environment, *vllm.glob("*.whl"))
    return environment


def _path(*first: Path | installed.Interpreter) -> dict[str, str]:
    directories = [place if isinstance(place, Path) else place.root / "bin" for place in first]
    return {"PATH": ":".join([*map(str, directories), "/usr/bin", "/bin"])}


def _types(command: str, **env: str) -> str:
    """Type a command, and return the prefix of the Python that it ran and what that has loaded."""
    return hostile.prints(["sh", "-c", command], env=env)


def _doctor(
    environment: installed.Interpreter, *arguments: str | Path, **env: str
) -> tuple[int, str, str]:
    """Return the doctor's status, and the state and detail of what it says of commands."""
    process = environment.run("-m", "vllm_nemo", "doctor", "--json", *arguments, env=env)
    data: Any = json.loads(process.stdout)
    assert data["holds"] is (process.returncode == 0)
    (check,) = [check for check in data["checks"] if check["name"] == "commands"]
    others = {check["name"] for check in data["checks"] if check["state"] == "fail"} - {"commands"}
    assert not others
    return process.returncode, check["state"], check["detail"]


def test_a_virtual_environment_over_an_image_runs_the_images_command(
    image: installed.Interpreter, venv: installed.Interpreter
) -> None:
    path = _path(venv, image)
    assert _types("vllm serve", **path) == f"{image.root} {STOCK} serve"
    status, state, detail = _doctor(venv, **path)
    assert (status, state) == (1, "fail")
    assert "vllm, ray and torchrun on PATH run another Python than this one" in detail
    assert f"{image.root}/bin/" in detail
    where = image.file("vllm")
    assert f"stock vLLM {installed.BASE_VERSION} at {where}, without an overlay" in detail
    # The commands to use are of this environment.
    assert f"  {venv.python} -m vllm.entrypoints.cli.main" in detail.splitlines()
    assert f"  {venv.python} -m ray.scripts.scripts" in detail.splitlines()
    assert f"  {venv.python} -m torch.distributed.run" in detail.splitlines()
    assert "vllm-nemo" not in detail.split("on PATH")[0]


def test_what_the_doctor_says_to_do_in_such_an_image_helps(
    tmp_path: Path, vllm: Path, image: installed.Interpreter
) -> None:
    own = prefixes.python(tmp_path / "usr")
    prefixes.install(own, *vllm.glob("vllm-*.whl"))
    environment = prefixes.on_top(own, tmp_path / "venv")
    prefixes.install(environment, installed.wheel())
    path = _path(environment, own)
    _, state, detail = _doctor(environment, **path)
    assert state == "fail"
    python = f"{own.root}/bin/python"
    assert f'{python} -m pip install --no-deps "vllm-nemo=={installed.OVERLAY_VERSION}"' in detail
    prefixes.install(own, installed.wheel())
    assert _types("vllm", **path) == f"{own.root} {SERVED}"
    # Not what the environment's doctor has looked at: it has an overlay of its own.
    assert _doctor(environment, **path)[1] == "fail"
    assert _doctor(environment, "--python", own.python, **_path(own))[:2] == (0, "ok")


def test_the_layout_that_the_page_of_images_shows_is_right(tmp_path: Path, vllm: Path) -> None:
    own = prefixes.python(tmp_path / "usr")
    prefixes.install(own, *vllm.glob("*.whl"))
    environment = prefixes.on_top(own, tmp_path / "venv")
    path = _path(environment, own)
    assert _types("vllm", **path) == f"{own.root} {SERVED}"
    assert _types("python -m vllm.cli", **path) == f"{environment.root} {SERVED}"
    hostile.prints(["vllm-nemo", "doctor"], env=path)
    status, state, detail = _doctor(environment, **path)
    assert (status, state) == (0, "warn")
    assert "loads the same vLLM and the same overlay" in detail


def test_an_environment_that_is_not_activated_names_its_own_command(
    image: installed.Interpreter, whole: installed.Interpreter
) -> None:
    own = whole.root / "bin" / "vllm"
    for path in (_path(image), _path(image, whole)):
        assert _types("vllm", **path) == f"{image.root} {STOCK}"
        status, state, detail = _doctor(whole, **path)
        assert (status, state) == (1, "fail")
        assert f"  {own}" in detail.splitlines()
        assert f"put {own.parent} first on PATH" in detail
    path = _path(whole, image)
    assert _types("vllm", **path) == f"{whole.root} {SERVED}"
    assert _doctor(whole, **path)[:2] == (0, "ok")


def test_no_command_on_path_is_no_fault(whole: installed.Interpreter) -> None:
    status, state, detail = _doctor(whole, **_path())
    assert (status, state) == (0, "ok")
    assert detail == "vllm, vllm-nemo, ray and torchrun are not on PATH"


def test_a_user_install_in_front_hides_the_environments_command(
    tmp_path: Path, image: installed.Interpreter, whole: installed.Interpreter
) -> None:
    home = tmp_path / "home" / ".local"
    (home / "bin").mkdir(parents=True)
    shutil.copy(image.root / "bin" / "vllm", home / "bin" / "vllm")
    path = _path(home / "bin", whole)
    assert _types("vllm", **path) == f"{image.root} {STOCK}"
    status, state, detail = _doctor(whole, **path)
    assert (status, state) == (1, "fail")
    assert "vllm on PATH runs another Python than this one" in detail
    assert str(home / "bin" / "vllm") in detail


@pytest.mark.parametrize("name", ["python", "python3", "python3.{}"])
def test_every_name_of_an_environments_python_is_the_same_one(
    whole: installed.Interpreter, name: str
) -> None:
    minor = whole.prints("-c", "import sys; print(sys.version_info[1])")
    script = whole.root / "bin" / "vllm"
    _, rest = script.read_text().split("\n", 1)
    for line in (
        f"#!{whole.root}/bin/{name.format(minor)}",
        f"#!/usr/bin/env {name.format(minor)}",
    ):
        script.write_text(f"{line}\n{rest}")
        path = _path(whole)
        assert _types("vllm", **path) == f"{whole.root} {SERVED}"
        assert _doctor(whole, **path)[:2] == (0, "ok")


def test_the_python_that_env_finds_is_the_one(
    image: installed.Interpreter, whole: installed.Interpreter
) -> None:
    script = whole.root / "bin" / "vllm"
    _, rest = script.read_text().split("\n", 1)
    script.write_text(f"#!/usr/bin/env python3\n{rest}")
    tools = whole.root / "tools"
    tools.mkdir()
    shutil.copy(script, tools)
    path = _path(tools, image, whole)
    assert _types("vllm", **path) == f"{image.root} {STOCK}"
    assert _doctor(whole, **path)[1] == "fail"


@pytest.mark.parametrize("flag", ["-S", "-sS"])
def test_flags_in_the_first_line_can_take_the_overlay_away(
    whole: installed.Interpreter, flag: str
) -> None:
    # Without site, the script has to find vLLM by itself.
    script = whole.root / "bin" / "vllm"
    code = f"import sys\nsys.path.append({str(whole.site_packages)!r})\n"
    script.write_text(f"#!{whole.python} {flag}\n{code}from vllm.cli import main\nmain()\n")
    path = _path(whole)
    assert _types("vllm", **path).endswith(STOCK)
    status, state, detail = _doctor(whole, **path)
    assert (status, state) == (1, "fail")
    assert f"starts this Python with {flag}" in detail


def test_long_paths_and_paths_with_blanks(
    tmp_path: Path, vllm: Path, image: installed.Interpreter
) -> None:
    # Too long for a first line of Linux, or not possible in one: the installers let sh do it.
    for installer in ("uv", "pip"):
        for name in ("a blank", "long" * 30):
            environment = installed.make(tmp_path / installer / name / "env")
            if installer == "uv":
                prefixes.install(environment, *vllm.glob("*.whl"))
            else:
                pip = [sys.executable, "-m", "pip", "--python", environment.python, "install"]
                hostile.prints([*pip, "--quiet", "--no-deps", "--no-index", *vllm.glob("*.whl")])
            script = environment.root / "bin" / "vllm"
            assert script.read_text().startswith("#!/bin/sh\n")
            path = _path(environment)
            assert _types("vllm", **path) == f"{environment.root} {SERVED}"
            assert _doctor(environment, **path)[:2] == (0, "ok")
            assert _doctor(environment, **_path(image))[1] == "fail"
            # And such a script in front of another environment.
            assert str(environment.root) in _other(tmp_path, vllm, environment)


def _other(tmp_path: Path, vllm: Path, front: installed.Interpreter) -> str:
    other = tmp_path / "other"
    if not other.exists():
        prefixes.install(installed.make(other), *vllm.glob("*.whl"))
    (site_packages,) = other.glob("lib/python3*/site-packages")
    environment = installed.Interpreter(other, other / "bin" / "python", site_packages)
    _, state, detail = _doctor(environment, **_path(front))
    assert state == "fail"
    return detail


def test_a_relocatable_environment(tmp_path: Path, vllm: Path) -> None:
    root = tmp_path / "env"
    make = [sys.executable, "-m", "uv", "venv", "--quiet", "--relocatable", "--offline"]
    hostile.prints([*make, "--python", installed.INTERPRETER, root])
    (site_packages,) = root.glob("lib/python3*/site-packages")
    environment = installed.Interpreter(root, root / "bin" / "python", site_packages)
    prefixes.install(environment, *vllm.glob("*.whl"))
    assert "$(" in (root / "bin" / "vllm").read_text().split("\n")[1]
    assert _doctor(environment, **_path(environment))[:2] == (0, "ok")
    # Through a link from elsewhere, it is still its own.
    links = tmp_path / "links"
    links.mkdir()
    (links / "vllm").symlink_to(root / "bin" / "vllm")
    assert _types("vllm", **_path(links)) == f"{root} {SERVED}"
    assert _doctor(environment, **_path(links))[:2] == (0, "ok")
    # Moved, it runs the Python of the new place.
    moved = tmp_path / "moved"
    root.rename(moved)
    (site_packages,) = moved.glob("lib/python3*/site-packages")
    environment = installed.Interpreter(moved, moved / "bin" / "python", site_packages)
    assert _types("vllm", **_path(environment)) == f"{moved} {SERVED}"
    assert _doctor(environment, **_path(environment))[:2] == (0, "ok")


def _tool(tool: str, root: Path, vllm: Path) -> Path:
    """Install the overlay as a tool, which brings vLLM; return the directory of its commands."""
    bin_ = root / "bin"
    env = {
        "UV_TOOL_DIR": str(root / "tools"),
        "UV_TOOL_BIN_DIR": str(bin_),
        "UV_CACHE_DIR": str(root / "cache"),
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_FIND_LINKS": str(vllm),
        "PIPX_HOME": str(root / "pipx"),
        "PIPX_BIN_DIR": str(bin_),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(vllm),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # By pip, it would first fetch a newer pip for itself.
        "PIPX_DEFAULT_BACKEND": "uv",
        "PATH": f"{Path(find_uv_bin()).parent}:/usr/bin:/bin",
    }
    wanted = f"vllm-nemo=={installed.OVERLAY_VERSION}"
    if tool == "uv":
        command = [find_uv_bin(), "tool", "install", "--quiet", "--python", installed.INTERPRETER]
    else:
        # Beside the tests' Python, or wherever it is installed.
        beside = Path(sys.executable).parent
        pipx = shutil.which("pipx", path=f"{beside}:{os.environ['PATH']}")
        if pipx is None:
            pytest.skip("pipx is not installed")
        command = [pipx, "install", "--quiet", "--python", installed.INTERPRETER]
    hostile.prints([*command, wanted], env=env)
    return bin_


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_a_tool_has_a_vllm_of_its_own(
    tmp_path: Path, vllm: Path, image: installed.Interpreter, tool: str
) -> None:
    # The tool brings `vllm-nemo` alone, so that `vllm` is the image's.
    path = _path(_tool(tool, tmp_path, vllm), image)
    assert _types("vllm", **path) == f"{image.root} {STOCK}"
    process = hostile.run(["vllm-nemo", "doctor"], env=path)
    assert process.returncode == 1
    assert process.stdout.endswith("\nThe overlay does NOT hold: commands.\n")
    # Asked by way of the tool, the image's Python has no overlay.
    asked = hostile.run(["vllm-nemo", "doctor", "--python", image.python], env=path)
    assert asked.returncode == 1
    assert "vllm-nemo is not installed for" in asked.stdout
    # And an environment with the overlay says that `vllm-nemo` is the tool's.
    environment = prefixes.on_top(image, tmp_path / "venv")
    prefixes.install(environment, installed.wheel())
    _, _, detail = _doctor(environment, **path)
    assert "vllm-nemo on PATH runs another Python" in detail
    assert str(image.root) in detail


# Not Python, or not to be told.


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("#!/usr/bin/env bash\nexec pyenv exec vllm\n", "which Python it runs cannot be told"),
        ("#!/usr/bin/env python-that-is-not-there\n", "python-that-is-not-there"),
        ("#!/nowhere/bin/python3\n", "/nowhere/bin/python3"),
        ("\x7fELF", "which Python it runs cannot be told"),
        ("", "which Python it runs cannot be told"),
        ('#!/bin/sh\n\'\'\'exec\' "$HOME/python" "$0" "$@"\n', "cannot be told"),
        ("#!/bin/sh\n'''exec' 'unfinished\n", "cannot be told"),
    ],
)
def test_what_cannot_be_told_is_said(whole: installed.Interpreter, content: str, part: str) -> None:
    script = whole.root / "bin" / "vllm"
    script.write_text(content)
    status, state, detail = _doctor(whole, **_path(whole))
    starts = not content.startswith(("#!/nowhere", "#!/usr/bin/env python-"))
    assert (status, state) == ((0, "warn") if starts else (1, "fail"))
    assert part in detail
    assert str(script) in detail


def test_a_zip_file_decides_for_itself(tmp_path: Path, whole: installed.Interpreter) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "__main__.py").write_text("print('its own vLLM')\n")
    script = whole.root / "bin" / "vllm"
    whole.prints("-m", "zipapp", program, "-p", whole.python, "-o", script)
    assert _types("vllm", **_path(whole)) == "its own vLLM"
    status, state, detail = _doctor(whole, **_path(whole))
    assert (status, state) == (0, "warn")
    assert "is a zip file" in detail


def test_a_ray_without_vllm_is_only_a_warning(tmp_path: Path, whole: installed.Interpreter) -> None:
    # NeMo-RL's driver has such a one, and nothing of it can run a stock vLLM.
    driver = installed.make(tmp_path / "driver")
    script = driver.root / "bin" / "ray"
    script.write_text(f"#!{driver.python}\n")
    script.chmod(0o755)
    status, state, detail = _doctor(whole, **_path(driver))
    assert (status, state) == (0, "warn")
    assert "no vLLM" in detail


# --python


def test_another_python_is_asked(whole: installed.Interpreter, venv: installed.Interpreter) -> None:
    path = _path(whole)
    here = whole.run("-m", "vllm_nemo", "doctor", env=path)
    asked = venv.run("-m", "vllm_nemo", "doctor", "--python", whole.python, env=path)
    assert (asked.returncode, asked.stdout) == (0, here.stdout)
    assert str(whole.python) in asked.stdout
    # Its name is looked up as a shell would.
    named = venv.run("-m", "vllm_nemo", "doctor", "--python", "python3", "--json", env=path)
    assert named.returncode == 0
    data = json.loads(named.stdout)
    assert data["vllm"]["directory"] == str(whole.file("vllm"))
    assert Path(data["python"]).parent == whole.python.parent
    whole.served("vllm/models.py").write_text("")
    asked = venv.run("-m", "vllm_nemo", "doctor", "--python", whole.python, env=path)
    assert asked.returncode == 1
    assert "served files" in asked.stdout.splitlines()[-1]


def test_a_python_without_the_overlay_has_an_answer_too(
    whole: installed.Interpreter, image: installed.Interpreter
) -> None:
    asked = whole.run("-m", "vllm_nemo", "doctor", "--python", image.python, "--json")
    data = json.loads(asked.stdout)
    assert (asked.returncode, data["holds"], data["active"]) == (1, False, False)
    assert data["python"] == str(image.python)
    assert data["overlay"] is None
    assert data["vllm"]["directory"] == str(image.file("vllm"))
    assert data["vllm"]["version"] == installed.BASE_VERSION
    text = whole.run("-m", "vllm_nemo", "doctor", "--python", image.python)
    assert text.returncode == 1
    assert f'{image.python} -m pip install "vllm-nemo=={installed.BASE_VERSION}.*"' in "".join(
        line.strip() + " " for line in text.stdout.splitlines()
    )
    assert text.stdout.endswith("\nThe overlay does NOT hold: overlay.\n")


@pytest.mark.parametrize("python", ["nowhere/bin/python", "no-such-python", ".", "/bin/true"])
def test_what_is_no_python_cannot_be_asked(whole: installed.Interpreter, python: str) -> None:
    asked = whole.run("-m", "vllm_nemo", "doctor", "--python", python)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith(f"vllm-nemo: --python {python}: ")
    assert len(asked.stderr.splitlines()) == 1
    both = whole.run("-m", "vllm_nemo", "doctor", "--python", python, "--ray")
    assert both.returncode == 2


def test_a_python_that_does_not_answer(tmp_path: Path, whole: installed.Interpreter) -> None:
    slow = tmp_path / "python3"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    code = (
        "import sys, vllm_nemo._overlay.doctor.others as o; o.TIMEOUT = 0.5\n"
        "from vllm_nemo._overlay.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    asked = whole.run("-c", code, "doctor", "--python", slow)
    assert asked.returncode == 1
    assert "no answer within 0.5 s" in asked.stderr
    script = whole.root / "bin" / "vllm"
    script.write_text(f"#!{slow}\n")
    process = whole.run("-c", code, "doctor", env=_path(whole))
    assert process.returncode == 1
    assert "no answer within 0.5 s" in process.stdout
