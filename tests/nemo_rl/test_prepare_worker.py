"""``prepare_worker``: what it sets, what it leaves alone, and that it fails before it sets."""

from __future__ import annotations

import pytest

COPIED = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
UV_RUN = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
FP32 = "NRL_VLLM_FP32_LM_HEAD"
PYTHON = "NRL_VLLM_RAY_PY_EXECUTABLE"


def test_nothing_asked_for(environment, call):
    result = call(environment, "vllm_nemo.prepare_worker()")
    assert result["returned"] is None
    assert result["environment"] == {COPIED: UV_RUN}
    assert result["loaded"] == []


def test_everything_asked_for(complete, call):
    result = call(
        complete,
        "vllm_nemo.prepare_worker(py_executable='/opt/python', extra_env_vars=['B', ' A ', 'B'], "
        "fp32_lm_head=True, require_routed_experts_capture=True)",
    )
    assert result["environment"] == {
        FP32: "1",
        PYTHON: "/opt/python",
        COPIED: f"A,B,{FP32},{UV_RUN}",
    }


def test_names_are_added_to_those_already_there(environment, call):
    result = call(
        environment,
        "vllm_nemo.prepare_worker(extra_env_vars=('MINE',))",
        **{COPIED: f" OTHERS,,{UV_RUN}, MINE"},
    )
    assert result["environment"][COPIED] == f"MINE,OTHERS,{UV_RUN}"


def test_a_second_call_changes_nothing_and_the_list_is_the_callers(environment, call):
    expression = (
        "(lambda names: [[vllm_nemo.prepare_worker(extra_env_vars=names), "
        "os.environ['VLLM_RAY_EXTRA_ENV_VARS_TO_COPY']][1] for _ in 'ab'] + [names])([' Z ', 'A'])"
    )
    first, second, names = call(environment, expression)["returned"]
    assert first == second == f"A,{UV_RUN},Z"
    assert names == [" Z ", "A"]


@pytest.mark.parametrize("head", ["False", "None"])
def test_an_ambient_value_switches_nothing_on(complete, call, head):
    result = call(
        complete, f"vllm_nemo.prepare_worker(fp32_lm_head={head})", **{FP32: "1", PYTHON: "/other"}
    )
    assert result["environment"] == {COPIED: UV_RUN}


@pytest.mark.parametrize(
    ("arguments", "patch"),
    [
        ("fp32_lm_head=True", "fp32-lm-head"),
        ("py_executable='x', fp32_lm_head=True", "fp32-lm-head"),
    ],
)
def test_a_patch_that_is_missing_is_named_and_nothing_is_set(environment, call, arguments, patch):
    result = call(environment, f"vllm_nemo.prepare_worker({arguments})", **{COPIED: "KEPT"})
    assert result["raised"] == "OverlayError"
    assert patch in result["message"]
    assert "0.29.0" in result["message"]
    assert result["environment"] == {COPIED: "KEPT"}


@pytest.mark.parametrize(
    ("expression", "raised", "words"),
    [
        ("vllm_nemo.prepare_worker(extra_env_vars='NAME')", "TypeError", "one string"),
        ("vllm_nemo.prepare_worker(extra_env_vars=['A,B'])", "ValueError", "A,B"),
        ("vllm_nemo.prepare_worker(extra_env_vars=[''])", "ValueError", "not names"),
        ("vllm_nemo.prepare_worker(extra_env_vars=['A=1'])", "ValueError", "A=1"),
        ("vllm_nemo.prepare_worker(py_executable=' ')", "ValueError", "empty"),
        ("vllm_nemo.prepare_worker('python')", "TypeError", "positional"),
    ],
)
def test_arguments_that_make_no_sense(environment, call, expression, raised, words):
    result = call(environment, expression)
    assert result["raised"] == raised
    assert words in result["message"]
    assert result["environment"] == {}


def test_a_switched_off_overlay_is_refused(environment, call):
    result = call(environment, "vllm_nemo.prepare_worker()", NRL_VLLM_OVERLAY="off")
    assert result["raised"] == "OverlayError"
    assert "NRL_VLLM_OVERLAY" in result["message"]
    assert result["environment"] == {}


def test_an_overlay_for_another_vllm_is_refused(environment, call, tmp_path):
    other = tmp_path / "vllm"
    other.mkdir()
    (other / "__init__.py").write_text("")
    (other / "_version.py").write_text("__version__ = version = '0.28.0'\n")
    # In front of the environment's own vLLM, as PYTHONPATH puts it.
    result = call(environment, "vllm_nemo.prepare_worker()", PYTHONPATH=str(tmp_path))
    assert result["raised"] == "OverlayError"
    assert "0.28.0" in result["message"]
    assert "vllm/models.py" in result["message"]
