"""NeMo-RL's names: the signatures it calls, and what each tells of the overlay."""

from __future__ import annotations

import pytest

# name: parameters, as the page of NeMo-RL's patcher has them (the newest ones of
# _apply_vllm_patches included); a star stands before those that are keyword-only.
SIGNATURES = {
    "_apply_vllm_patches": (
        "py_executable * extra_env_vars nemotron_h_fp32_lm_head require_moe_routed_experts_capture "
        "require_dsa_topk_capture dsa_topk_layer_ids"
    ),
    "_get_vllm_file": "relative_path",
    "_locked_file_patch": "file_path",
    "_patch_vllm_glm_decoder_sequence_parallel_moe": "logger",
    "_patch_vllm_init_workers_ray": "py_executable extra_env_vars",
    "_patch_vllm_llama_eagle3_own_lm_head": "logger",
    "_patch_vllm_moe_routed_experts_capture": "logger * required",
    "_patch_vllm_nemotron_h_fp32_lm_head": "logger",
    "_patch_vllm_radio_final_layernorm": "logger",
    "_patch_vllm_radio_layerscale_loader": "logger",
    "_patch_vllm_radio_native_loader": "logger",
    "_patch_vllm_ray_executor_v2_tcpstore_port": "logger",
    "_patch_vllm_routed_experts_capture_router_fallback": "logger * required",
    "_patch_vllm_shm_broadcast_bind_retry": "logger",
    "_patch_vllm_tool_parser_namespace_tool": "logger",
    "ensure_vllm_source_compat": "",
    "modelopt_moe_amax_aliases": "model",
}

_DESCRIBE = """(lambda inspect: {
    name: " ".join(
        ("* " if parameter.kind is parameter.KEYWORD_ONLY and first else "") + parameter.name
        for parameters in [list(inspect.signature(getattr(nemo_rl, name)).parameters.values())]
        for index, parameter in enumerate(parameters)
        for first in [all(p.kind is not p.KEYWORD_ONLY for p in parameters[:index])]
    )
    for name in nemo_rl.__all__ if callable(getattr(nemo_rl, name))
})(__import__("inspect"))"""

LOGGER = "__import__('logging').getLogger('test')"


def test_names_and_signatures(environment, call):
    result = call(environment, _DESCRIBE)
    assert result["returned"] == SIGNATURES
    assert result["loaded"] == []


def test_the_variable(environment, call):
    result = call(environment, "nemo_rl.VLLM_NEMOTRON_H_FP32_LM_HEAD_ENV_VAR")
    assert result["returned"] == "NRL_VLLM_FP32_LM_HEAD"


def test_apply_is_prepare_worker(complete, call):
    result = call(
        complete,
        "nemo_rl._apply_vllm_patches('/opt/python', extra_env_vars=['A'], "
        "nemotron_h_fp32_lm_head=True, require_moe_routed_experts_capture=True)",
    )
    assert result["environment"] == {
        "NRL_VLLM_FP32_LM_HEAD": "1",
        "NRL_VLLM_RAY_PY_EXECUTABLE": "/opt/python",
        "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": "A,NRL_VLLM_FP32_LM_HEAD,RAY_ENABLE_UV_RUN_RUNTIME_ENV",
    }


@pytest.mark.parametrize(
    ("arguments", "raised", "words"),
    [
        ("require_dsa_topk_capture=True", "OverlayError", "DSA top-k capture"),
        ("require_dsa_topk_capture=True, dsa_topk_layer_ids=[0, 2]", "OverlayError", "0.29.0.1"),
        ("dsa_topk_layer_ids=[0]", "ValueError", "require_dsa_topk_capture"),
        ("require_dsa_topk_capture=True, dsa_topk_layer_ids=[-1]", "ValueError", "[-1]"),
        ("require_dsa_topk_capture=True, dsa_topk_layer_ids=[1, 1]", "ValueError", "[1, 1]"),
        (
            "require_dsa_topk_capture=True, require_moe_routed_experts_capture=True",
            "ValueError",
            "same channel",
        ),
        ("nemotron_h_fp32_lm_head=True", "OverlayError", "fp32-lm-head"),
    ],
)
def test_apply_refuses_what_is_not_there(environment, call, arguments, raised, words):
    result = call(environment, f"nemo_rl._apply_vllm_patches('python', {arguments})")
    assert result["raised"] == raised
    assert words in result["message"]
    assert result["environment"] == {}


@pytest.mark.parametrize(
    "name",
    [name for name, parameters in SIGNATURES.items() if parameters.startswith("logger")],
)
def test_a_check_of_a_patch_that_is_there(complete, call, name):
    result = call(complete, f"nemo_rl.{name}({LOGGER})")
    tells = name in (
        "_patch_vllm_moe_routed_experts_capture",
        "_patch_vllm_routed_experts_capture_router_fallback",
        "_patch_vllm_nemotron_h_fp32_lm_head",
    )
    assert result["returned"] is (True if tells else None)


@pytest.mark.parametrize(
    "name", ["_patch_vllm_ray_executor_v2_tcpstore_port", "_patch_vllm_radio_final_layernorm"]
)
def test_what_is_not_needed_or_in_the_base_is_well(environment, call, name):
    assert call(environment, f"nemo_rl.{name}({LOGGER})")["returned"] is None


def test_a_missing_patch_is_false_or_an_error_when_required(environment, call):
    assert (
        call(environment, f"nemo_rl._patch_vllm_nemotron_h_fp32_lm_head({LOGGER})")["returned"]
        is False
    )
    off = {"NRL_VLLM_OVERLAY": "off"}
    name = "_patch_vllm_moe_routed_experts_capture"
    assert call(environment, f"nemo_rl.{name}({LOGGER})", **off)["returned"] is False
    result = call(environment, f"nemo_rl.{name}({LOGGER}, required=True)", **off)
    assert result["raised"] == "OverlayError"
    result = call(environment, f"nemo_rl._patch_vllm_radio_native_loader({LOGGER})", **off)
    assert result["raised"] == "OverlayError"


def test_source_compat_checks_and_can_be_called_again(environment, call):
    expression = "[nemo_rl.ensure_vllm_source_compat() for _ in 'ab']"
    assert call(environment, expression)["returned"] == [None, None]
    result = call(environment, expression, NRL_VLLM_OVERLAY="off")
    assert result["raised"] == "OverlayError"


def test_ray_workers_keep_what_was_decided_for_the_head(complete, call):
    expression = (
        "[vllm_nemo.prepare_worker(fp32_lm_head=True), "
        "nemo_rl._patch_vllm_init_workers_ray('/opt/python', ['A'])][1]"
    )
    result = call(complete, expression)
    assert result["returned"] is True
    assert result["environment"]["NRL_VLLM_FP32_LM_HEAD"] == "1"
    assert result["environment"]["NRL_VLLM_RAY_PY_EXECUTABLE"] == "/opt/python"


def test_files(environment, call):
    served = call(environment, "nemo_rl._get_vllm_file('models.py')")["returned"]
    assert served == str(environment.served("vllm/models.py"))
    stock = call(environment, "nemo_rl._get_vllm_file('plain.py')")["returned"]
    assert stock == str(environment.file("vllm/plain.py"))
    off = call(environment, "nemo_rl._get_vllm_file('models.py')", NRL_VLLM_OVERLAY="off")
    assert off["returned"] == str(environment.file("vllm/models.py"))
    missing = call(environment, "nemo_rl._get_vllm_file('no/such.py')")
    assert missing["raised"] == "RuntimeError"
    assert "no/such.py" in missing["message"]


def test_rewriting_a_file_is_refused(environment, call):
    result = call(environment, "nemo_rl._locked_file_patch('vllm/models.py')")
    assert result["raised"] == "OverlayError"
    assert "build time only" in result["message"]
