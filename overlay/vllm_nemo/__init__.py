"""vLLM's modules with NeMo-RL's patches, served beside an unmodified vLLM.

Importing this package activates the overlay in this process: from then on, the first import of a
patched ``vllm`` module loads the overlay's copy of it. ``vllm_nemo.pth`` does that in every
interpreter of the environment; ``import vllm_nemo`` before vLLM does it where that is not read.

Every interpreter pays for this module, so it imports nothing that is not loaded already and reads
no other file. The work is in ``vllm_nemo._overlay``, which the first import of vLLM loads.
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

# The module that defines each public name; it is imported when the name is first used.
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
    """The overlay's entry in ``sys.meta_path``: it answers for ``vllm`` and its own machinery."""

    __slots__ = ()

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Find the spec of a patched module, or of one that serves them.

        Args:
            fullname: The module's name, with its packages.
            path: The ``__path__`` of its package, None for a top-level module.
            target: The module that is reloaded, if one is.

        Returns:
            The spec, with the served file as its origin; None to leave the name to other finders.
            If the overlay and the vLLM that is installed do not match, its loader raises.

        Raises:
            OverlayError: if a file of the overlay is gone.
        """
        if not fullname.startswith("vllm"):
            return None
        if fullname != "vllm" and not fullname.startswith("vllm."):
            return _find_own(fullname, path) if fullname.startswith("vllm_nemo.") else None
        finder = import_unlocked("vllm_nemo._overlay.finder")
        spec: ModuleSpec | None = finder.find_spec(fullname, path, target)
        return spec


def _find_own(fullname: str, path: "Sequence[str] | None") -> "ModuleSpec | None":
    """Find a module of this package as Python does, and load it by its content.

    It says what is the matter if a module of the machinery is gone: an ImportError would be taken
    for a vLLM that is not installed.
    """
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) != __name__ and hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, path)
            if spec is not None:
                if fullname not in ("vllm_nemo._overlay", "vllm_nemo._overlay.content"):
                    import_unlocked("vllm_nemo._overlay.content").by_content(spec)
                return spec
    if not fullname.startswith("vllm_nemo._overlay."):
        return None
    import os

    package = os.path.dirname(__file__)  # noqa: PTH120 (pathlib may not be loaded)
    version = ""
    for name in os.listdir(os.path.dirname(package)):  # noqa: PTH120, PTH208
        if name.startswith("vllm_nemo-") and name.endswith(".dist-info"):
            version = f"=={name[len('vllm_nemo-') : -len('.dist-info')]}"
    kind: type[Exception] = RuntimeError
    if not fullname.endswith((".errors", ".content")):  # without these there is no OverlayError
        kind = import_unlocked("vllm_nemo._overlay.errors").OverlayError
    raise kind(
        f"A file of vllm-nemo is missing or cannot be read: "
        f"{os.path.dirname(package)}/{fullname.replace('.', '/')}.py\n"  # noqa: PTH120
        f'Reinstall the overlay: pip install --force-reinstall --no-deps "vllm-nemo{version}"'
    )


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
    if "__compiled__" in globals():
        # Nuitka's finder, the first, would answer with the stock modules that it has compiled.
        position = 0
    finders.insert(position, OverlayFinder())


def is_active() -> bool:
    """Tell whether the overlay's finder is in this process's ``sys.meta_path``."""
    # By name, so that a reload of this module does not add a second one.
    return any(getattr(finder, "__module__", None) == __name__ for finder in sys.meta_path)


def check_loaded() -> None:
    """Raise if somebody else has loaded a module that the overlay serves.

    For the logic of patches that runs once a model is built: no import need come after that.

    Raises:
        OverlayError: naming the modules.
    """
    finder = sys.modules.get("vllm_nemo._overlay.finder")
    if finder is not None:
        finder.check_loaded()


def import_unlocked(name: str) -> "ModuleType":
    """Import a module of this package from within ``find_spec``, without a deadlock.

    importlib calls a finder while it holds the process-wide import lock. Suppose that another
    thread has begun to import ``json``, and that the finder needs ``json`` too. The thread waits
    for the lock to go on, and the finder waits for the thread to finish ``json``: neither can
    continue. So this function releases the lock, imports, and takes the lock again.

    Args:
        name: The module's name, with its packages.

    Returns:
        The module.
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
    except RuntimeError:  # this thread does not hold the lock (any more)
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
