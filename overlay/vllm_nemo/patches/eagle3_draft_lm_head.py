"""Which ``lm_head`` a draft model uses: its own or the target's (patch ``eagle3-draft-lm-head``).

vLLM gives a draft model the target's head unless the draft's ``load_weights`` has seen a head in
the draft's checkpoint. That is wrong where the weights come later (``load_format="dummy"`` and then
a refit, as in reinforcement learning):

- A draft with a truncated vocabulary (EAGLE-3's ``draft_vocab_size``) gets a head of another size.
  Nothing fails: vLLM cuts the logits to the draft's size. The draft then proposes from the
  target's first rows, which stand for other tokens.
- A refit of the draft's head becomes a refit of the target's. It does not fit, or it replaces
  weights of the policy.

So there are two rules beside vLLM's own. Heads of different sizes are never shared. A shared head
is never loaded through the draft. vLLM's flag (``has_own_lm_head``, vllm-project/vllm#28549) knows
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
_logger = logging.getLogger("vllm.nemo.eagle3_draft_lm_head")

# For each draft model, the target's head that vLLM may have given it. It is kept outside of the
# modules, so that their state dicts, copies and children stay as they are.
_targets: weakref.WeakKeyDictionary[nn.Module, weakref.ref[nn.Module]] = weakref.WeakKeyDictionary()


class HeadSize(NamedTuple):
    """The size of an ``lm_head``; None for a number that the head does not tell.

    Attributes:
        tokens: How many tokens it scores, over all tensor-parallel ranks, without padding and
            without LoRA's rows.
        width: The size of the hidden states that it takes.
    """

    tokens: int | None
    width: int | None

    @classmethod
    def of(cls, head: object) -> HeadSize:
        """Read the size of a head.

        Args:
            head: vLLM's ``ParallelLMHead`` or embedding, also one that LoRA has wrapped. Anything
                else, such as the placeholder on a rank without the head, tells no size.

        Returns:
            The size.
        """
        # A tied head is the embedding, and LoRA wraps that.
        head = getattr(head, "base_layer", head)
        tokens = getattr(head, "org_vocab_size", None)
        width = getattr(head, "embedding_dim", None)
        return cls(
            tokens if isinstance(tokens, int) else None,
            width if isinstance(width, int) else None,
        )

    def differs(self, other: HeadSize) -> bool:
        """Tell whether a number that both sizes tell is not the same.

        Args:
            other: The other size.
        """
        return any(
            mine is not None and theirs is not None and mine != theirs
            for mine, theirs in zip(self, other, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.tokens} tokens from {self.width} features"


def keeps_own_head(draft: nn.Module, target_head: nn.Module | None) -> bool:
    """Tell whether a draft model must keep its own head because the target's has another size.

    The V1 proposer and the V2 loaders call it once for a draft model, before they share. It logs
    one line if the draft keeps its head: a warning if no weight of that head was seen.

    Args:
        draft: The draft model. The heads of MTP layers (``model.layers[*].shared_head.head``) are
            compared, too.
        target_head: The target's ``lm_head``, or its placeholder; None if the target has none.

    Returns:
        True if the sizes differ. False leaves the decision to vLLM: the sizes are the same, or one
        of the models has no head on this rank.
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
        # No error: some draft classes and load formats never tell what they loaded.
        _logger.warning(
            "The draft model %s keeps its own lm_head (it gives %s, the target's %s), but no "
            "weight of that head was seen while the draft was loaded. If its checkpoint has none, "
            "its drafts are noise until a refit sends one.",
            name,
            own,
            target,
        )
    return True


def refuse_shared_head(draft: nn.Module, name: str) -> None:
    """Refuse a weight that would be loaded through a draft model into the target's head.

    A draft model calls it for each weight named ``*lm_head*`` that it is about to load. Nothing is
    shared while a draft is first loaded, so it refuses in later loads only, which are refits.

    Args:
        draft: The draft model.
        name: The name of the weight, for the message.

    Raises:
        RuntimeError: if the draft's ``lm_head`` is the target's.
    """
    target = _targets.get(draft)
    head = target() if target is not None else None
    if head is None or getattr(draft, "lm_head", None) is not head:
        return
    raise RuntimeError(
        f"vllm-nemo (patch eagle3-draft-lm-head): {name!r} was sent to the draft model "
        f"{type(draft).__name__}, which shares the target's lm_head ({HeadSize.of(head)}). Loading "
        "it would overwrite the target's head. Leave lm_head out of what is sent to the draft, or "
        "start the draft from a checkpoint that has an lm_head."
    )


def _heads(draft: nn.Module) -> Iterator[object]:
    yield getattr(draft, "lm_head", None)
    layers = getattr(getattr(draft, "model", None), "layers", None)
    if layers is None:
        return
    for layer in layers.values() if hasattr(layers, "values") else layers:
        yield getattr(getattr(layer, "shared_head", None), "head", None)


def _configured_vocabulary() -> int | None:
    """Return the target's configured vocabulary, for a rank that does not have its head."""
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    if config is None or config.model_config is None:
        return None
    tokens: int = config.model_config.get_vocab_size()
    return tokens


def _weights_follow() -> bool:
    """Tell whether the draft was loaded with random weights, so that a refit has to follow."""
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    if config is None:
        return False
    load = getattr(config.speculative_config, "draft_load_config", None) or config.load_config
    return bool(load.load_format == "dummy")
