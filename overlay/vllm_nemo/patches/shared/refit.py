"""Parameters of one module that arrive one at a time, in different batches or different refits.

vLLM's own refit (``start_weight_update`` ... ``finish_weight_update``, ``reload_weights``) is
*layerwise*: for its duration it keeps a module's real tensors aside ("kernel tensors"), puts
parameters on the meta device, buffers what their weight loaders are given, and builds the module
anew once all of its elements have come. Two things follow for a module whose parameters do not
come together:

- what is written into a parameter directly is lost;
- a parameter that did not come is left as uninitialised memory, if another one of its module did.

So a parameter is written, through its weight loader, into the tensor that will be in use after the
refit. Only when each one of the module's has come is the module handed to the layerwise machinery,
which then also knows that it was loaded. Modules are taken to be small: LayerScale, LayerNorm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    import torch
    from torch import nn
    from vllm.model_executor.model_loader.reload.types import LayerReloadingInfo

# What the layerwise refit calls the loaders that it wraps around others.
_WRAPPER = "online_process_loader"


def load(module: nn.Module, name: str, weight: torch.Tensor) -> None:
    """Load a module's own parameter ``name`` so that it is in use after any kind of refit.

    ``weight`` is copied at once, cast to the parameter's dtype.
    """
    tensor = _lasting(module, name)
    _loader(tensor)(tensor, weight)


def fill(module: nn.Module, name: str, value: float) -> None:
    """Set every element of a module's own parameter ``name``."""
    _lasting(module, name).data.fill_(value)


def free(module: nn.Module, name: str) -> None:
    """Take the wrapper of a layerwise refit that is over off a parameter's weight loader.

    From 0.27.0 the refit leaves tensors called ``bias`` where they are, and its wrapper stays on
    them if their module got nothing. A weight that is then loaded directly is dropped silently.
    """
    parameter = getattr(module, name)
    if _is_wrapper(getattr(parameter, "weight_loader", None)) and not _info(module).can_load():
        parameter.weight_loader = _loader(parameter)


def hand_over(module: nn.Module, names: AbstractSet[str]) -> None:
    """Tell a layerwise refit that each of the module's parameters has come, if they have.

    ``names`` are those that have ever been loaded. Does nothing outside of such a refit.
    """
    kept = _kept_aside(module)
    if kept is None or not names >= kept.keys():
        return
    for name, tensor in sorted(kept.items()):
        parameter: Any = getattr(module, name)
        parameter.weight_loader(parameter, tensor.detach().clone())


def _lasting(module: nn.Module, name: str) -> torch.nn.Parameter:
    """Return the tensor that the module computes with once no refit is under way."""
    kept = _kept_aside(module)
    return getattr(module, name) if kept is None else kept[name]


def _kept_aside(module: nn.Module) -> dict[str, torch.nn.Parameter] | None:
    """Return the parameters that a layerwise refit has put aside; None if none is under way."""
    info = _info(module)
    if not info.can_load() or info.kernel_tensors is None:
        return None
    parameters: dict[str, torch.nn.Parameter] = info.kernel_tensors[0]
    return parameters


def _info(module: nn.Module) -> LayerReloadingInfo:
    """Return what vLLM notes of a module for a layerwise refit."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    return get_layerwise_info(module)


def _loader(tensor: torch.nn.Parameter) -> Callable[..., object]:
    """Return a parameter's own weight loader, without the wrapper of a layerwise refit."""
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    loader: Callable[..., object] = getattr(tensor, "weight_loader", default_weight_loader)
    while _is_wrapper(loader):
        loader = loader.__wrapped__  # type: ignore[attr-defined]
    return loader


def _is_wrapper(loader: object) -> bool:
    return getattr(loader, "__name__", None) == _WRAPPER
