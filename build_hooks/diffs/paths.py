"""Which files a patch of a queue can change: Python modules, and, as new ones, files of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What vLLM looks for beside its modules: tuned configurations, templates, lists.
DATA = (".json", ".jinja", ".toml", ".txt", ".yaml")
# What some file systems take in no file name; a drive, an alternative stream.
_FORBIDDEN = set('\\:*?"<>|')


def is_module(path: str) -> bool:
    """Tell whether a file is a Python module.

    Args:
        path: The path, or the name.
    """
    return path.endswith(".py")


def is_data(path: str) -> bool:
    """Tell whether a file is data, by its name.

    Args:
        path: The path, or the name.
    """
    return path.endswith(DATA)


def faults(path: str) -> Iterator[str]:
    """Say what keeps a queue from having a diff of a file of this name.

    Args:
        path: The file, as ``vllm/...``.
    """
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or ":" in path:
        yield f"{path!r} is not a relative path with forward slashes"
    elif any(part in ("", ".", "..") for part in parts):
        yield f"{path!r} has an empty, '.' or '..' component"
    elif parts[0] != "vllm":
        yield f"{path!r} lies outside vllm/"
    elif is_module(path):
        if not all(part.isidentifier() for part in path.removesuffix(".py").split("/")):
            yield f"{path!r} cannot be imported: each component must be an identifier"
    elif not is_data(path):
        yield f"{path!r} is not a Python module, nor data ({', '.join(DATA)})"
    elif any(part != part.strip(" .") or not _writable(part) for part in parts):
        yield f"{path!r} has a name that not every file system can hold"


def _writable(name: str) -> bool:
    return name.isprintable() and not _FORBIDDEN & set(name)
