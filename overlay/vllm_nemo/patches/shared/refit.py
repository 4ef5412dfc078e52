"""Loads parameters of one module that come one at a time, in different batches or refits.

vLLM's own refit (``start_weight_update`` ... ``finish_weight_update``, ``reload_weights``) is
*layerwise*. While it runs, it keeps a module's real tensors aside ("kernel tensors"), puts the
parameters on the meta device, and buffers what their weight loaders get. It builds the module again
when all of its elements have come. For a module whose parameters do not come together this means:

- What is written into a parameter directly is lost.
- A parameter that does not come becomes uninitialised memory, if another one of its module comes.

So this module writes a parameter, through its weight loader, into the tensor that will be in use
after the refit. Once all parameters of the module have come, it hands them to vLLM's refit, which
then knows that the module was loaded. The modules are small: LayerScale, LayerNorm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    import torch
    from torch import nn
    from vllm.model_executor.model_loader.reload.types import LayerReloadingInfo

# The name of the function that the layerwise refit wraps around weight loaders.
_WRAPPER = "online_process_loader"


def load(module: nn.Module, name: str, weight: torch.Tensor) -> None:
    """Load one parameter of a module, in any kind of refit or outside of one.

    Args:
        module: The module that has the parameter itself.
        name: The parameter's name in it.
        weight: A tensor that the parameter's weight loader takes. It is copied at once, and cast
            to the parameter's dtype.
    """
    tensor = _lasting(module, name)
    _loader(tensor)(tensor, weight)


def fill(module: nn.Module, name: str, value: float) -> None:
    """Set every element of one parameter of a module, as ``load`` does.

    Args:
        module: The module.
        name: The name of the parameter in it.
        value: The value of every element.
    """
    _lasting(module, name).data.fill_(value)


def free(module: nn.Module, name: str) -> None:
    """Take the wrapper of a layerwise refit that has ended off a parameter's weight loader.

    From 0.27.0 on such a refit leaves parameters called ``bias`` where they are, and its wrapper
    stays on them if their module got nothing. A later direct load is then dropped silently.

    Args:
        module: The module that has the parameter itself.
        name: The parameter's name in it.
    """
    parameter = getattr(module, name)
    if _is_wrapper(getattr(parameter, "weight_loader", None)) and not _info(module).can_load():
        parameter.weight_loader = _loader(parameter)


def hand_over(module: nn.Module, names: AbstractSet[str]) -> None:
    """Hand a module's parameters to the layerwise refit that runs, if all of them have come.

    It does nothing outside of such a refit.

    Args:
        module: The module.
        names: The names of its parameters that have ever been loaded.
    """
    kept = _kept_aside(module)
    if kept is None or not names >= kept.keys():
        return
    for name, tensor in sorted(kept.items()):
        parameter: Any = getattr(module, name)
        parameter.weight_loader(parameter, tensor.detach().clone())


def _lasting(module: nn.Module, name: str) -> torch.nn.Parameter:
    """Return the tensor that the module computes with when no refit runs."""
    kept = _kept_aside(module)
    return getattr(module, name) if kept is None else kept[name]


def _kept_aside(module: nn.Module) -> dict[str, torch.nn.Parameter] | None:
    """Return the parameters that a layerwise refit keeps aside; None if no such refit runs."""
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
