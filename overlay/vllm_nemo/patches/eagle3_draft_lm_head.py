"""Which ``lm_head`` a speculative draft model uses: its own, or the target model's.

vLLM gives a draft model the target's head unless a checkpoint with a head of the draft's own went
through the draft's ``load_weights``. Two things are wrong with that where the weights come later
(``load_format="dummy"``, then a refit, as in reinforcement learning):

- A draft with a truncated vocabulary (EAGLE-3's ``draft_vocab_size``) gets a head of another size.
  Nothing fails: the logits are cut to the draft's size, so the draft proposes from the target's
  first rows, which stand for other tokens.
- A refit of the draft's head is then a refit of the target's: it does not fit, or it replaces
  weights of the policy.

Two rules on top of vLLM's own: heads of different sizes are never shared, and a shared head is
never loaded through the draft. vLLM's flag (``has_own_lm_head``, vllm-project/vllm#28549) knows
about checkpoints only.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

# A child of vLLM's logger, for its handlers.
_logger = logging.getLogger("vllm.nemo.draft_head")

# The target's head that a draft model may have been given. Kept outside of the modules, so that no
# state dict, copy or walk of theirs changes.
_targets: weakref.WeakKeyDictionary[nn.Module, weakref.ref[nn.Module]] = weakref.WeakKeyDictionary()


class HeadSize(NamedTuple):
    """What an ``lm_head`` says of its size; None for what it does not say."""

    tokens: int | None
    """Tokens that it scores, over all tensor-parallel ranks, without padding and LoRA's rows."""
    width: int | None
    """Size of the hidden states that it takes."""

    @classmethod
    def of(cls, head: object) -> HeadSize:
        """Read the size of a head; a stand-in on a rank without the head says nothing."""
        # A tied head is the embedding, which LoRA may have wrapped.
        head = getattr(head, "base_layer", head)
        tokens = getattr(head, "org_vocab_size", None)
        width = getattr(head, "embedding_dim", None)
        return cls(
            tokens if isinstance(tokens, int) else None,
            width if isinstance(width, int) else None,
        )

    def differs(self, other: HeadSize) -> bool:
        """Tell whether the two contradict each other in something that both say."""
        return any(
            mine is not None and theirs is not None and mine != theirs
            for mine, theirs in zip(self, other, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.tokens} tokens from {self.width} features"


def keeps_own_head(draft: nn.Module, target_head: nn.Module | None) -> bool:
    """Tell whether a draft model must keep its own head because the target's has another size.

    False leaves the decision to vLLM: the sizes agree, or one of the models has no head here. The
    heads of MTP layers (``model.layers[*].shared_head.head``) count as the draft's too. The V1
    proposer and the V2 loaders call it once for a draft model, before they share.
    """
    if target_head is None:
        return False
    target = HeadSize.of(target_head)
    if target.tokens is None:
        target = HeadSize(_configured_vocabulary(), target.width)
    own = next((size for size in map(HeadSize.of, _heads(draft)) if size.differs(target)), None)
    if own is None:
        _targets[draft] = weakref.ref(target_head)
        return False
    name = type(draft).__name__
    if getattr(draft, "has_own_lm_head", True) or _weights_follow():
        _logger.info(
            "The draft model %s keeps its own lm_head: it gives %s, the target's %s.",
            name,
            own,
            target,
        )
    else:
        # Not an error: some draft classes and load formats never say what they loaded.
        _logger.warning(
            "The draft model %s keeps its own lm_head (it gives %s, the target's %s), but no "
            "weight of it was seen while the draft was loaded. If its checkpoint has none, its "
            "drafts are noise until a refit sends one.",
            name,
            own,
            target,
        )
    return True


def refuse_shared_head(draft: nn.Module, name: str) -> None:
    """Raise RuntimeError if ``name``, a weight of a draft's head, would go to the target's head.

    Called for each weight named ``*lm_head*`` that a draft model is about to load. While a draft is
    first loaded nothing is shared yet, so this concerns later loads: a refit.
    """
    target = _targets.get(draft)
    head = target() if target is not None else None
    if head is None or getattr(draft, "lm_head", None) is not head:
        return
    raise RuntimeError(
        f"vllm-nemo (patch eagle3-draft-lm-head): {name!r} was sent to the draft model "
        f"{type(draft).__name__}, which uses the target model's lm_head: the two have the same "
        f"size ({HeadSize.of(head)}), and the draft was loaded without one that differs. Loading "
        "it would overwrite the target's head. Leave lm_head out of what is sent to the draft, or "
        "start the draft from a checkpoint that holds an lm_head of its own."
    )


def _heads(draft: nn.Module) -> Iterator[object]:
    yield getattr(draft, "lm_head", None)
    layers = getattr(getattr(draft, "model", None), "layers", None)
    if layers is None:
        return
    for layer in layers.values() if hasattr(layers, "values") else layers:
        yield getattr(getattr(layer, "shared_head", None), "head", None)


def _configured_vocabulary() -> int | None:
    """Return the vocabulary in the target's configuration, for a rank that has no target head."""
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    if config is None or config.model_config is None:
        return None
    tokens: int = config.model_config.get_vocab_size()
    return tokens


def _weights_follow() -> bool:
    """Tell whether the draft was loaded with random weights, which a refit is to replace."""
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    if config is None:
        return False
    load = getattr(config.speculative_config, "draft_load_config", None) or config.load_config
    return bool(load.load_format == "dummy")
