"""What the tests of the three RADIO patches share: the scenarios, and the keys of their results."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
TOWER = HERE / "tower.py"
ENGINE = HERE / "engine.py"
RANKS = HERE / "ranks.py"
# For PYTHONPATH, where a scenario imports Nemotron VL.
TORCHVISION_STUB = HERE / "torchvision_stub"

FORMATS = ("legacy", "remote", "transformers", "hybrid")
DTYPES = ("float32", "bfloat16")
KINDS = ("image", "video", "packed")
STEPS = (
    "direct transformers",
    "transfer hybrid",
    "reload remote",
    "reload transformers",
    "direct legacy",
    "transfer remote",
)
PARAMETERS = 32  # of the two-layer tower

# The largest difference from transformers behind the bf16 projector, whose two matrix products
# round differently. Features are of scale 4 to 7, and up to 32. A wrong weight makes more than 1.
ROUNDING = 0.5
WRONG = 1.0


def tower(vllm_env, *, overlay, device="cpu"):
    arguments = {
        "device": device,
        "dtypes": list(DTYPES),
        "parts": ["formats", "scales", "layerwise", "names", *(["random"] if overlay else [])],
        "streams": random_streams() if overlay else None,
    }
    return vllm_env.scenario(TOWER, overlay=overlay, **arguments).ok()


SPLIT = ("remote", "transformers", "hybrid")


def split_names():
    """Each weight of the two-layer tower by its name in the formats with split attention."""

    def native(name):
        return (name, name, name)

    embeddings = {
        "patch_projection.weight": "embedder.weight",
        "video_patch_projection.weight": "video_embedder.weight",
        "position_embedding": "pos_embed",
        "cls_register_token": "cls_token.token",
    }
    rows = [
        (f"embeddings.{n}", f"embeddings.{n}", f"radio_model.model.patch_generator.{legacy}")
        for n, legacy in embeddings.items()
    ]
    for layer in range(2):
        names = []
        for leaf in ("weight", "bias"):
            for word in ("query", "key", "value"):
                remote = f"attention.attention.{word}.{leaf}"
                names.append((remote, f"attention.{word[0]}_proj.{leaf}", remote))
            output = (f"attention.output.dense.{leaf}", f"attention.o_proj.{leaf}")
            names.append((*output, f"attn.proj.{leaf}"))
            names += [native(f"{n}.{leaf}") for n in ("norm1", "norm2", "mlp.fc1", "mlp.fc2")]
        names += [native(f"layer_scale{number}.lambda1") for number in (1, 2)]
        prefix = f"encoder.layer.{layer}."
        rows += [
            (prefix + remote, prefix + current, f"radio_model.model.blocks.{layer}.{hybrid}")
            for remote, current, hybrid in names
        ]
    return rows


@st.composite
def _streams(draw):
    """Any order and cut into batches, each weight in any split format, some of them twice."""
    rows = split_names()
    rows += draw(st.lists(st.sampled_from(rows), max_size=12))
    pairs = []
    for row in draw(st.permutations(rows)):
        choice = draw(st.integers(0, len(SPLIT) - 1))
        pairs.append((SPLIT[choice], row[choice]))
    cuts = sorted(draw(st.lists(st.integers(0, len(pairs)), max_size=30)))
    return [pairs[a:b] for a, b in zip([0, *cuts], [*cuts, len(pairs)], strict=True)]


@functools.cache
def random_streams():
    """Write streams to a file, a list of batches of (format, name) each; returns its path."""
    streams = []

    @settings(max_examples=40, phases=[Phase.generate], database=None, deadline=None)
    @given(_streams())
    def collect(stream):
        streams.append(stream)

    collect()
    path = Path(tempfile.mkdtemp(prefix="radio-streams-"), "streams.json")
    path.write_text(json.dumps(streams))
    return str(path)


def engine(vllm_env, *, overlay, device="cpu"):
    # The engine runs eagerly; without dynamo, no kernel is compiled for resizing images either.
    env = {"PYTHONPATH": str(TORCHVISION_STUB), "TORCHDYNAMO_DISABLE": "1"}
    return vllm_env.scenario(ENGINE, overlay=overlay, env=env, device=device).ok()


def same(judged):
    """Whether features are transformers' bit by bit, for every kind of input."""
    return all(kind["equal"] for kind in judged["features"].values())


def least_difference(compared):
    return min(kind["difference"] for kind in compared.values())


def difference(compared):
    return max(kind["difference"] for kind in compared.values())
