"""vLLM's modules with NeMo-RL's patches, served beside an unmodified vLLM.

Importing this package activates the overlay in this process: from then on, the first import of a
patched ``vllm`` module loads the overlay's copy of it. ``vllm_nemo.pth`` and ``vllm_nemo.start``
do that in every interpreter of the environment; ``import vllm_nemo`` before vLLM does it where
they are not read.

Every interpreter pays for this module, so it imports nothing that is not loaded already and reads
no other file. The work is in the private modules, which the first import of vLLM loads.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from vllm_nemo._overlay.api import Patch, Upstream, list_patches, require
    from vllm_nemo._overlay.errors import OverlayError
    from vllm_nemo._overlay.worker import prepare_worker
    from vllm_nemo.nemo_rl import modelopt_moe_amax_aliases

__all__ = [
    "OverlayError",
    "Patch",
    "Upstream",
    "activate",
    "list_patches",
    "modelopt_moe_amax_aliases",
    "prepare_worker",
    "require",
]

# Which private module each public name comes from; imported when it is asked for.
_HOME = {
    "OverlayError": "vllm_nemo._overlay.errors",
    "Patch": "vllm_nemo._overlay.api",
    "Upstream": "vllm_nemo._overlay.api",
    "list_patches": "vllm_nemo._overlay.api",
    "modelopt_moe_amax_aliases": "vllm_nemo.nemo_rl",
    "prepare_worker": "vllm_nemo._overlay.worker",
    "require": "vllm_nemo._overlay.api",
}


class OverlayFinder:
    """The overlay's entry in ``sys.meta_path``: it answers for ``vllm`` and nothing else."""

    __slots__ = ()

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Return the spec of a patched module, or None to leave the name to the other finders.

        Raises OverlayError where the overlay and the vLLM that is installed do not match.
        """
        if fullname != "vllm" and not fullname.startswith("vllm."):
            return None
        finder = import_unlocked("vllm_nemo._overlay.finder")
        spec: ModuleSpec | None = finder.find_spec(fullname, path, target)
        return spec


def activate() -> None:
    """Put the overlay's finder in front of the path finder, unless that has been done."""
    if is_active():
        return
    finders = sys.meta_path
    position = len(finders)
    for index, finder in enumerate(finders):
        if getattr(finder, "__name__", None) == "PathFinder":
            position = index
            break
    finders.insert(position, OverlayFinder())


def is_active() -> bool:
    """Tell whether the overlay's finder is in this process's ``sys.meta_path``."""
    # By name, so that a reload of this module does not add a second one.
    return any(getattr(finder, "__module__", None) == __name__ for finder in sys.meta_path)


def import_unlocked(name: str) -> "ModuleType":
    """Import a module of this package from within ``find_spec``.

    importlib calls a finder with the process-wide import lock held. A thread that is half-way
    through importing, say, ``json`` needs that lock for its next step, while we would wait here
    for it to be done with ``json``: nobody moves. So the lock is given back for the while.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return module
    import _imp

    depth = 0
    try:
        while True:
            _imp.release_lock()
            depth += 1
    except RuntimeError:  # not, or no longer, held by this thread
        pass
    try:
        __import__(name)
    finally:
        for _ in range(depth):
            _imp.acquire_lock()
    return sys.modules[name]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    __import__(home)
    return getattr(sys.modules[home], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


activate()
