"""A RADIO tower without vLLM and torch, and its weights under every name that they have.

A tensor is a tuple, and a parameter remembers what its weight loader was given last.
"""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import strategies as st
from vllm_nemo.patches.radio_layerscale import load_layer_scales
from vllm_nemo.patches.radio_native_names import translate_tower

LAYERS = 2
PARTS = ("attn.qkv", "attn.proj", "norm1", "norm2", "mlp.fc1", "mlp.fc2")


class Parameter:
    """Holds what was loaded into it, by shard."""

    is_meta = False

    def __init__(self):
        self.held = {}
        self.data = self

    def weight_loader(self, parameter, weight, shard=None):
        assert parameter is self
        self.held[shard] = weight

    def fill_(self, value):
        self.held = {None: ("filled", value)}


class Module:
    """The part of ``nn.Module`` that is used."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Tower(Module):
    def __init__(self, layers=LAYERS, depth=LAYERS):
        names = [f"model.patch_generator.{n}" for n in ("pos_embed", "cls_token.token")]
        names += [f"model.patch_generator.{n}embedder.weight" for n in ("", "video_")]
        for index in range(layers):
            prefix = f"model.encoder.layers.{index}."
            names += [f"{prefix}{part}.{leaf}" for part in PARTS for leaf in ("weight", "bias")]
            names += [f"{prefix}ls1", f"{prefix}ls2"]
        self.parameters = {name: Parameter() for name in names}
        blocks = [
            Module(**{s: self.parameters[f"model.encoder.layers.{i}.{s}"] for s in ("ls1", "ls2")})
            for i in range(layers)
        ]
        self.model = SimpleNamespace(encoder=SimpleNamespace(layers=blocks))
        self.config = SimpleNamespace(initializer_factor=0.5, num_hidden_layers=depth)

    def named_parameters(self):
        return self.parameters.items()

    def get_submodule(self, owner):
        leaves = {
            n.rpartition(".")[2]: p
            for n, p in self.parameters.items()
            if n.rpartition(".")[0] == owner
        }
        return Module(**leaves)

    def load_weights(self, weights):
        """The loop of vLLM's loader, for names that it knows, behind both patches' generators."""
        loaded = set()
        stream = translate_tower(self, weights, loaded)
        for name, weight in load_layer_scales(self, stream, loaded):
            assert name.startswith("radio_model.model."), name
            key = name.removeprefix("radio_model.").replace("model.blocks", "model.encoder.layers")
            self.parameters[key].weight_loader(self.parameters[key], weight)
            loaded.add(key)
        return loaded

    def held(self):
        return {name: parameter.held for name, parameter in self.parameters.items()}


def native(index, rest):
    return f"encoder.layer.{index}.{rest}"


def legacy(index, rest):
    return f"radio_model.model.blocks.{index}.{rest}"


def spellings(parameter, shard):
    """Every name of a part of a parameter."""
    if parameter.startswith("model.patch_generator."):
        theirs = {
            "embedder.weight": "patch_projection.weight",
            "video_embedder.weight": "video_patch_projection.weight",
            "pos_embed": "position_embedding",
            "cls_token.token": "cls_register_token",
        }[parameter.removeprefix("model.patch_generator.")]
        return [f"radio_model.{parameter}", f"embeddings.{theirs}"]
    _, _, _, index, part = parameter.split(".", 4)
    if part in ("ls1", "ls2"):
        spelled = [part, f"{part}.grandma", f"{part}.gamma", f"layer_scale{part[2]}.lambda1"]
        return [legacy(index, name) for name in spelled] + [native(index, spelled[-1])]
    leaf = part.rpartition(".")[2]
    if part.startswith("attn.qkv"):
        word = {"q": "query", "k": "key", "v": "value"}[shard]
        remote, current = f"attention.attention.{word}.{leaf}", f"attention.{shard}_proj.{leaf}"
        return [native(index, remote), native(index, current), legacy(index, remote)]
    if part.startswith("attn.proj"):
        others = [f"attention.output.dense.{leaf}", f"attention.o_proj.{leaf}"]
        return [legacy(index, part)] + [native(index, name) for name in others]
    return [legacy(index, part), native(index, part)]


PIECES = [
    (name, shard)
    for name in Tower().parameters
    for shard in (("q", "k", "v") if ".qkv." in name else (None,))
]
COMPLETE = {
    name: {shard: (name, shard) for n, shard in PIECES if n == name} for name in Tower().parameters
}


@st.composite
def streams(draw):
    """All pieces in any order, each in any spelling, some twice, cut into batches."""
    pieces = draw(st.permutations(PIECES + draw(st.lists(st.sampled_from(PIECES), max_size=9))))
    weights = [(draw(st.sampled_from(spellings(*piece))), piece) for piece in pieces]
    batches = [[]]
    for weight in weights:
        batches[-1].append(weight)
        if draw(st.integers(0, 3)) == 0:
            batches.append([])
    return batches
