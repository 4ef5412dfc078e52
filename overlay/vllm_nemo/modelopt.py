"""Letting vLLM's expert loader find the amax buffers of ModelOpt's nested quantizers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


@contextlib.contextmanager
def modelopt_moe_amax_aliases(model: torch.nn.Module) -> Iterator[None]:
    """Make nested ModelOpt amax buffers visible under dotted names while the context is open.

    vLLM's ``RoutedExperts.load_weights`` turns a checkpoint's expert amax keys into names such as
    ``w13_input_quantizer._amax`` and looks each up with one ``getattr``, which finds nothing below
    a quantizer module. Here each module that has such a quantizer as a direct child gets an
    attribute of that dotted name, for children named ``w13_*`` or ``w2_*`` and ``*_quantizer``
    and their own buffers that end in ``_amax``.

    An alias is the buffer itself, of whatever shape and dtype: nothing is copied and nothing
    registered, so parameters, buffers and state dict stay as they are. An attribute that exists
    already, for example from an outer context, is left to whoever made it. On leaving, by an error
    too, those made here are taken away again.

    Create it after the model has reached its device and dtype, around the loading of weights only:
    moving a module replaces its buffers. The buffers need a ``weight_loader``, as all that vLLM
    loads. Weights that arrive through a reload on meta tensors are not reached by it.

    Args:
        model: The model whose MoE quantizers are about to be loaded.

    Yields:
        None.
    """
    with contextlib.ExitStack() as undo:
        for module in model.modules():
            for name, child in module.named_children():
                if not (name.startswith(("w13_", "w2_")) and name.endswith("_quantizer")):
                    continue
                for buffer_name, buffer in child.named_buffers(recurse=False):
                    alias = f"{name}.{buffer_name}"
                    if buffer_name.endswith("_amax") and not hasattr(module, alias):
                        # Past nn.Module's own __setattr__, which is for what is registered.
                        vars(module)[alias] = buffer
                        undo.callback(_remove, module, alias, buffer)
        yield


def _remove(module: torch.nn.Module, alias: str, buffer: torch.Tensor) -> None:
    if vars(module).get(alias) is buffer:
        del vars(module)[alias]
