"""Run vLLM's own DeepSeek layer stacks with sequence-parallel MoE, one real process a rank.

Every stack is run by a single rank (no parallelism), by 2 x 2 and by 2 x 4 ranks (data x tensor
parallel, expert parallelism over all of them), on the same weights and inputs. The data parallel
halves take different numbers of tokens at once. Written to the result, for each stack, number of
tokens and world: the largest difference from the single rank on any rank (null if the shape is
not [tokens, hidden]); and, for one stack, how far the single rank is from transformers' model.

Real here: the processes, gloo, vLLM's process groups and parallel configuration (with
``use_sequence_parallel_moe`` true of its own), its model classes, weight loaders, linear layers,
CPU attention with a KV cache, MoE runner and all-to-all manager. Stood in for, because vLLM's CPU
backend has none: the experts' kernel under expert parallelism (the CPU kernels ignore the expert
map), and the two collectives of the all-to-all manager that the CPU communicator lacks. Attention
is DeepSeek's without MLA, which CPUs do not have either; it stands in for models/deepseek_v32's
sparse MLA too. With the argument ``others`` two more models run, which guessed in the same way in
0.26 and 0.27: that one, and Qwen3-Next (with full attention only).
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
# Some of vLLM's helpers are compiled separately, with one run of a C++ compiler in each rank.
os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["VLLM_MLA_DISABLE"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
# vLLM's shared-memory collectives spin, so more ranks than cores would block each other. Without a
# common name for the memory (each rank sets its own below), vLLM uses torch.distributed.
os.environ["VLLM_DIST_IDENT"] = ""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import save_file

from tests.support import vllm_internals

HIDDEN, LAYERS, EXPERTS, VOCAB = 64, 3, 8, 128
WORLDS = ((1, 1), (2, 2), (2, 4))  # data parallel, tensor parallel
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "num_nextn_predict_layers": 1,
    "rope_theta": 10000.0,
    # Needed on a CPU: its kernel of plain RoPE misreads DeepSeek's strided q and k.
    "rope_scaling": {
        "type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


@dataclasses.dataclass(frozen=True)
class Stack:
    """One layer stack: how its configuration differs, and what it is."""

    kind: str
    settings: dict[str, Any]
    # Layers whose input an EAGLE-3 draft gets, too.
    aux: tuple[int, ...] = ()
    # Tokens of the two data parallel halves; then the length of a prompt, and the single tokens
    # that are decoded after it.
    counts: tuple[tuple[int, int], ...] = ((1, 17), (3, 1))
    prompt: int = 5
    steps: int = 1


STACKS = {
    # dense, then MoE to the end: shards pass from layer to layer and are gathered once. Every
    # number of tokens from 1 to 17.
    "decoder": Stack(
        "model", {}, (1, 2, LAYERS), tuple((n, 18 - n) for n in range(1, 10)), steps=2
    ),
    # MoE, dense, MoE: the first layer, and a gather before a dense layer.
    "alternating": Stack("model", {"first_k_dense_replace": 0, "moe_layer_freq": 2}, (1, 2)),
    # The drafts, whose layers are numbered after the target's.
    "mtp": Stack("mtp", {}),
    "eagle": Stack("eagle", {"num_hidden_layers": 2}),
}


DRAFTS = ("mtp", "eagle")
OTHERS = {
    "v32": Stack("v32", {"index_topk": 4}, (2, LAYERS)),
    "qwen3-next": Stack("qwen3-next", {}, (1,)),
}
QWEN = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 5,
    "mlp_only_layers": [3],
    "layer_types": ["full_attention"] * 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
}


def random(name: str, *shape: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.randn(*shape, generator=generator) * scale


def layer_weights(prefix: str, *, moe: bool) -> dict[str, torch.Tensor]:
    """Weights of one decoder layer under the names of a published checkpoint."""

    def linear(name: str, out: int, inner: int) -> None:
        key = f"{prefix}.{name}.weight"
        weights[key] = random(key, out, inner, scale=inner**-0.5)

    def norm(name: str, size: int) -> None:
        key = f"{prefix}.{name}.weight"
        weights[key] = 1 + random(key, size, scale=0.2)

    weights: dict[str, torch.Tensor] = {}
    norm("input_layernorm", HIDDEN)
    norm("post_attention_layernorm", HIDDEN)
    linear("self_attn.q_a_proj", 32, HIDDEN)
    norm("self_attn.q_a_layernorm", 32)
    linear("self_attn.q_b_proj", 4 * 32, 32)
    linear("self_attn.kv_a_proj_with_mqa", 32 + 16, HIDDEN)
    norm("self_attn.kv_a_layernorm", 32)
    linear("self_attn.kv_b_proj", 4 * 32, 32)
    linear("self_attn.o_proj", HIDDEN, 4 * 16)
    sizes = {"mlp": 96}
    if moe:
        linear("mlp.gate", EXPERTS, HIDDEN)
        bias = f"{prefix}.mlp.gate.e_score_correction_bias"
        weights[bias] = random(bias, EXPERTS, scale=0.1)
        sizes = {"mlp.shared_experts": 32, **{f"mlp.experts.{i}": 32 for i in range(EXPERTS)}}
    for name, size in sizes.items():
        linear(f"{name}.gate_proj", size, HIDDEN)
        linear(f"{name}.up_proj", size, HIDDEN)
        linear(f"{name}.down_proj", HIDDEN, size)
    return weights


def checkpoint(config: Any, kind: str) -> dict[str, torch.Tensor]:
    """All weights of a stack, with the names that vLLM's loader of that stack takes."""

    def is_moe(index: int) -> bool:
        return index >= config.first_k_dense_replace and index % config.moe_layer_freq == 0

    weights = {"model.embed_tokens.weight": random("embed", VOCAB, HIDDEN)}
    extra = {"mtp": f"model.layers.{config.num_hidden_layers}.", "eagle": "model."}.get(kind)
    if extra:
        for norm in ("enorm", "hnorm"):
            weights[f"{extra}{norm}.weight"] = 1 + random(norm, HIDDEN, scale=0.2)
        project = "eh_proj" if kind == "mtp" else "fc"
        weights[f"{extra}{project}.weight"] = random(project, HIDDEN, 2 * HIDDEN, scale=0.1)
    if kind == "mtp":
        weights[f"{extra}embed_tokens.weight"] = weights["model.embed_tokens.weight"]
        weights[f"{extra}shared_head.norm.weight"] = 1 + random("head norm", HIDDEN, scale=0.2)
        weights[f"{extra}shared_head.head.weight"] = random("head", VOCAB, HIDDEN)
        indices = [config.num_hidden_layers]
    else:
        weights["model.norm.weight"] = 1 + random("norm", HIDDEN, scale=0.2)
        indices = list(range(config.num_hidden_layers))
    for index in indices:
        moe = kind == "eagle" or is_moe(index)
        weights.update(layer_weights(f"model.layers.{index}", moe=moe))
    return weights


def qwen_checkpoint(config: Any) -> dict[str, torch.Tensor]:
    """All weights of a Qwen3-Next stack of full attention layers."""
    weights = {"embed_tokens.weight": random("embed", VOCAB, HIDDEN)}
    shapes: dict[str, tuple[int, ...]] = {"norm": (HIDDEN,)}
    for index in range(config.num_hidden_layers):
        layer = f"layers.{index}"
        shapes[f"{layer}.input_layernorm"] = shapes[f"{layer}.post_attention_layernorm"] = (HIDDEN,)
        for name, heads in (("q_proj", 8), ("k_proj", 4), ("v_proj", 4)):  # q with its gate
            shapes[f"{layer}.self_attn.{name}"] = (heads * 32, HIDDEN)
        shapes[f"{layer}.self_attn.o_proj"] = (HIDDEN, 4 * 32)
        shapes[f"{layer}.self_attn.q_norm"] = shapes[f"{layer}.self_attn.k_norm"] = (32,)
        sizes = {f"{layer}.mlp": 96}
        if index not in config.mlp_only_layers:
            shapes[f"{layer}.mlp.gate"] = (EXPERTS, HIDDEN)
            shapes[f"{layer}.mlp.shared_expert_gate"] = (1, HIDDEN)
            sizes = {f"{layer}.mlp.experts.{expert}": 32 for expert in range(EXPERTS)}
            sizes[f"{layer}.mlp.shared_expert"] = 32
        for name, size in sizes.items():
            shapes[f"{name}.gate_proj"] = shapes[f"{name}.up_proj"] = (size, HIDDEN)
            shapes[f"{name}.down_proj"] = (HIDDEN, size)
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = random(name, *shape, scale=0.2 if len(shape) == 1 else 0.12)
    return weights


def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
    if isinstance(input_, list):
        widths = [tensor.shape[1] for tensor in input_]
        return list(all_gatherv(self, torch.cat(input_, 1), dim, sizes).split(widths, 1))
    assert dim == 0
    sizes = sizes or [input_.shape[0]] * self.world_size
    padded = torch.zeros(max(sizes), *input_.shape[1:], dtype=input_.dtype)
    padded[: input_.shape[0]] = input_
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=self.device_group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def reduce_scatterv(
    self: Any, input_: torch.Tensor, dim: int = 0, sizes: list[int] | None = None
) -> torch.Tensor:
    assert dim == 0
    total = input_.clone()
    dist.all_reduce(total, group=self.device_group)
    sizes = sizes or [total.shape[0] // self.world_size] * self.world_size
    return total.split(sizes)[self.rank_in_group].clone()


def experts_kernel(
    layer: Any, x: torch.Tensor, router_logits: torch.Tensor, **_: object
) -> torch.Tensor:
    """DeepSeek-V3's (one group) or plain routing, and the SwiGLU experts that this rank has."""
    if layer.scoring_func == "sigmoid":
        scores = router_logits.float().sigmoid()
        choice = scores + layer.e_score_correction_bias
    else:
        choice = scores = router_logits.float().softmax(-1)
    chosen = choice.topk(layer.top_k, dim=-1).indices
    weights = scores.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True) * layer.routed_scaling_factor
    local = chosen if layer.expert_map is None else layer.expert_map[chosen]
    out = torch.zeros_like(x)
    for expert in range(layer.w13_weight.shape[0]):
        token, slot = (local == expert).nonzero(as_tuple=True)
        gate, up = (x[token] @ layer.w13_weight[expert].T).chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * up
        out.index_add_(0, token, hidden @ layer.w2_weight[expert].T * weights[token, slot, None])
    return out


def plain_attention(base: type) -> type:
    """Make DeepSeek's attention without MLA callable as models/deepseek_v32's."""

    class PlainAttention(base):
        def __init__(self, vllm_config: Any, config: Any, prefix: str, **_: object) -> None:
            super().__init__(
                vllm_config=vllm_config,
                config=config,
                hidden_size=config.hidden_size,
                num_heads=config.num_attention_heads,
                qk_nope_head_dim=config.qk_nope_head_dim,
                qk_rope_head_dim=config.qk_rope_head_dim,
                v_head_dim=config.v_head_dim,
                q_lora_rank=config.q_lora_rank,
                kv_lora_rank=config.kv_lora_rank,
                cache_config=vllm_config.cache_config,
                reduce_results=False,
                prefix=prefix,
            )

        def forward(self, positions: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(positions, hidden_states, None)

    return PlainAttention


def build(stack: Stack, vllm_config: Any, name: str) -> torch.nn.Module:
    """Construct the stack with vLLM's classes and load its weights with vLLM's loader."""
    config = vllm_config.model_config.hf_config
    if stack.kind == "mtp":
        vllm_config = copy.copy(vllm_config)
        vllm_config.model_config = vllm_config.speculative_config.draft_model_config
        config = vllm_config.model_config.hf_config
        model = vllm_internals.deepseek_mtp.DeepSeekMTP(vllm_config=vllm_config, prefix=name)
        weights = checkpoint(config, "mtp")
    elif stack.kind == "eagle":
        draft = copy.deepcopy(config)
        draft.model = draft
        vllm_config.speculative_config.draft_model_config.hf_config = draft
        # Drafts number their layers after the target's.
        model = vllm_internals.deepseek_eagle.DeepseekV2Model(
            vllm_config=vllm_config, prefix=name, start_layer_id=LAYERS
        )
        weights = {
            key.removeprefix("model."): value for key, value in checkpoint(config, "eagle").items()
        }
    elif stack.kind == "v32":
        deepseek_v32 = vllm_internals.deepseek_v32(plain_attention)
        model = deepseek_v32.DeepseekV32Model(vllm_config=vllm_config, prefix=name)
        model.aux_hidden_state_layers = stack.aux
        weights = {
            key.removeprefix("model."): value for key, value in checkpoint(config, "model").items()
        }
    elif stack.kind == "qwen3-next":
        model = vllm_internals.qwen3_next.Qwen3NextModel(vllm_config=vllm_config, prefix=name)
        model.aux_hidden_state_layers = stack.aux
        weights = qwen_checkpoint(config)
    else:
        decoder = vllm_internals.deepseek_v2.DeepseekV3ForCausalLM
        model = decoder(vllm_config=vllm_config, prefix=name)
        model.model.aux_hidden_state_layers = stack.aux
        weights = checkpoint(config, "model")
    expected = {key for key, _ in model.named_parameters() if "lm_head" not in key}
    loaded = set(model.load_weights((key, value.clone()) for key, value in weights.items()))
    # The loader of the experts names them as the checkpoint does.
    missing = (
        expected - loaded - {key.replace("experts.", "experts.routed_experts.") for key in loaded}
    )
    assert not missing, sorted(missing)
    vllm_internals.replace_experts(model, experts_kernel)
    return model


def inputs(half: int, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [count] and, for a draft, the target's hidden states [count, hidden]."""
    seed = f"{half} {start} {count}"
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    return torch.randint(0, VOCAB, (count,), generator=generator), random(seed, count, HIDDEN)


def run(
    model: Any,
    stack: Stack,
    attending: vllm_internals.Attending,
    half: int,
    start: int,
    counts: tuple[int, int],
) -> list[torch.Tensor]:
    """One forward pass of ``counts[half]`` tokens from position ``start``; every output tensor."""
    ids, target = inputs(half, start, counts[half])
    positions = torch.arange(start, start + counts[half])
    with torch.no_grad(), attending.context(positions, counts):
        out = model(ids, positions, *((target,) if stack.kind in DRAFTS else (None,)))
    if isinstance(out, torch.Tensor):
        return [out]
    return [t for part in out for t in (part if isinstance(part, list) else [part])]


def cases(stack: Stack, half: int) -> list[tuple[str, int, tuple[int, int]]]:
    """Label, first position and the halves' numbers of tokens of every forward pass."""
    listed = [(str(counts[half]), 0, counts) for counts in stack.counts]
    listed.append(("prompt", 0, (stack.prompt, stack.prompt)))
    decoded = [(f"decode {step}", stack.prompt + step, (1, 1)) for step in range(stack.steps)]
    return listed + decoded


def rank_main(scratch: Path, world: tuple[int, int], rank: int, configs: dict[str, Any]) -> None:
    dp_size, tp_size = world
    dp, tp = divmod(rank, tp_size)
    os.environ["VLLM_DIST_IDENT"] = str(rank)
    vllm_internals.add_collectives(all_gatherv, reduce_scatterv)
    for config in configs.values():
        vllm_internals.set_rank(config, dp, tp)
    first = next(iter(configs.values()))
    results: dict[str, dict[str, list[torch.Tensor]]] = {}
    port = first.parallel_config.data_parallel_master_port
    url = f"tcp://127.0.0.1:{port}"
    vllm_internals.start_parallel_groups(first, tp, tp_size, rendezvous=url)
    for name, config in configs.items():
        stack = {**STACKS, **OTHERS}[name]
        assert config.parallel_config.use_sequence_parallel_moe is (tp_size > 1)
        with vllm_internals.set_current_vllm_config(config):
            model = build(stack, config, name.replace("-", "_"))
            attending = vllm_internals.Attending(config)
            results[name] = {}
            for half in range(2) if dp_size == 1 else (dp,):
                for label, start, counts in cases(stack, half):
                    out = run(model, stack, attending, half, start, counts)
                    results[name][f"{half}: {label}"] = [tensor.clone() for tensor in out]
    torch.save(results, scratch / f"{dp_size}x{tp_size}-{rank}.pt")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def make_config(model: Path) -> Any:
    """Make one rank's configuration, with the draft's in it."""
    from vllm import ModelRegistry

    decoder = vllm_internals.deepseek_v2.DeepseekV3ForCausalLM
    # Registered as classes: vLLM inspects each class that is registered by name in a new process.
    ModelRegistry.register_model("DeepseekV3ForCausalLM", decoder)
    ModelRegistry.register_model("DeepSeekMTPModel", vllm_internals.deepseek_mtp.DeepSeekMTP)
    return vllm_internals.configuration(
        model,
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=128,
        speculative_config={"method": "mtp", "num_speculative_tokens": 1},
    )


def make_configs(base: Any, stacks: dict[str, Stack], world: tuple[int, int]) -> dict[str, Any]:
    """Derive the configuration of every stack for one world; ranks are set in the ranks."""
    dp_size, tp_size = world
    configs = {}
    port = vllm_internals.get_open_port()
    for name, stack in stacks.items():
        config = configs[name] = copy.deepcopy(base)
        config.parallel_config = vllm_internals.parallel_configuration(dp_size, tp_size, port)
        if stack.kind == "qwen3-next":
            config.model_config.hf_config = vllm_internals.Qwen3NextConfig(**QWEN)
            config.model_config.hf_text_config = config.model_config.hf_config
        for key, value in stack.settings.items():
            setattr(config.model_config.hf_config, key, value)
    return configs


def difference(out: list[torch.Tensor], expected: list[torch.Tensor]) -> float | None:
    if [t.shape for t in out] != [t.shape for t in expected]:
        return None
    pairs = zip(out, expected, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def transformers_difference(model: Path, single: dict[str, list[torch.Tensor]]) -> float:
    """Largest difference of the single rank's final hidden states from transformers' own model."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model)
    config.moe_layer_freq = 1
    weights = checkpoint(config, "model")
    weights["lm_head.weight"] = torch.zeros(VOCAB, HIDDEN)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    worst = 0.0
    for half in range(2):
        for label, start, counts in cases(STACKS["decoder"], half):
            if start == 0:
                ids = inputs(half, start, counts[half])[0]
                with torch.no_grad():
                    expected = reference.model(ids[None]).last_hidden_state[0]
                out = single[f"{half}: {label}"][0]
                worst = max(worst, (out - expected).abs().max().item())
    return worst


def main() -> None:
    scratch = Path.cwd()
    torch.set_num_threads(1)
    model = scratch / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    base = make_config(model)
    stacks = {**STACKS, **(OTHERS if json.loads(sys.argv[1])["others"] else {})}
    fork = mp.get_context("fork")
    for world in WORLDS:
        configs = make_configs(base, stacks, world)
        processes = [
            fork.Process(target=rank_main, args=(scratch, world, rank, configs))
            for rank in range(world[0] * world[1])
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        codes = [process.exitcode for process in processes]
        assert not any(codes), (world, codes)
    single = torch.load(scratch / "1x1-0.pt")
    differences: dict[str, Any] = {name: {} for name in stacks}
    for dp_size, tp_size in WORLDS[1:]:
        for rank in range(dp_size * tp_size):
            results = torch.load(scratch / f"{dp_size}x{tp_size}-{rank}.pt")
            for name, outputs in results.items():
                for key, out in outputs.items():
                    row = differences[name].setdefault(key.split(": ")[1], {})
                    found = difference(out, single[name][key])
                    worst = row.get(f"tp{tp_size}", 0.0)
                    row[f"tp{tp_size}"] = None if None in (found, worst) else max(found, worst)
    result = {
        "differences": differences,
        "from transformers": transformers_difference(model, single["decoder"]),
    }
    Path(os.environ["SCENARIO_RESULT"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
