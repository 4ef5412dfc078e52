"""A module that the overlay refuses to load: whoever asks is told where it is, an import fails.

Programs ask ``importlib.util.find_spec("vllm")`` to learn whether vLLM is there. A finder that
raises would end them, and None would tell them that it is not.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import NoReturn

from vllm_nemo._overlay.errors import OverlayError


class Refusal(SourceFileLoader):
    """The loader of a module that must not be loaded.

    Attributes:
        reason: Why, and what repairs it.
    """

    reason: str

    def get_code(self, _fullname: str) -> NoReturn:
        """Refuse to load or to run the module: whatever does either gets its code from here.

        Raises:
            OverlayError: always.
        """
        raise OverlayError(self.reason)


def refused(fullname: str, stock: ModuleSpec | None, reason: str) -> ModuleSpec:
    """Make the spec of a module that must not be loaded.

    Args:
        fullname: The module's name, with its packages.
        stock: The spec that it would have without the overlay, None where vLLM has no such module.
        reason: Why it must not, and what repairs it.

    Returns:
        A spec with the place of the stock module, whose loader raises ``reason``.
    """
    loader = Refusal(fullname, fullname if stock is None else stock.origin or fullname)
    loader.reason = reason
    spec = ModuleSpec(fullname, loader, origin=None if stock is None else stock.origin)
    if stock is not None:
        spec.has_location = stock.has_location
        spec.submodule_search_locations = stock.submodule_search_locations
    return spec
