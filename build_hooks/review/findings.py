"""What pyflakes finds in a served module and not in the stock one: a merge left it behind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from build_hooks.errors import BuildError
from build_hooks.review import source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from build_hooks.assembly.tree import Module


def findings(modules: Iterable[Module]) -> list[tuple[str, str]]:
    """Compare the findings of pyflakes in served and in stock modules.

    Args:
        modules: The modules that an overlay serves.

    Returns:
        The path of the module and the finding, for each that stock does not have: an import that
        nothing uses, a name that nothing defines.

    Raises:
        BuildError: if pyflakes is not installed.
    """
    found = []
    for module in modules:
        known = Counter(_messages(module.path, module.stock))
        for message in _messages(module.path, module.served):
            if known[message]:
                known[message] -= 1
            else:
                found.append((module.path, message))
    return found


def _messages(path: str, content: bytes | None) -> Iterator[str]:
    try:
        from pyflakes.checker import Checker
    except ModuleNotFoundError as error:
        raise BuildError("a review needs pyflakes: use ci/queue, which brings it") from error
    for message in Checker(source.parse(content), filename=path).messages:
        # Without the line, which a patch moves.
        yield message.message % message.message_args
