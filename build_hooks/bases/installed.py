"""A base that is installed in the environment that runs the build."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.bases.directory import DirectoryBase, editable_root, holds_vllm, owner_in
from build_hooks.errors import BaseError

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_installed(paths: Sequence[Path] | None = None) -> DirectoryBase | None:
    """Find the vLLM of the environment that runs the build, by whatever distribution name.

    It is looked for in the site-packages of the interpreter (under pip's build isolation, those of
    the environment that pip runs in), then in those of the active virtual environment (``python -m
    build`` and ``uv build`` run an interpreter of their own).

    Args:
        paths: Directories of installed packages to look through in place of these.

    Returns:
        The base; None if no vLLM is installed.

    Raises:
        BaseError: if two distributions own ``vllm/``, or the owner cannot be told.
    """
    for path in _site_packages() if paths is None else paths:
        owner = owner_in(path)
        if owner is not None:
            name, version, dist_info = owner
            editable = editable_root(dist_info)
            root = editable or path
            if not holds_vllm(root):
                raise BaseError(
                    f"{name} {version} is installed, but {root}/vllm/__init__.py is missing; "
                    "reinstall it"
                )
            pristine = editable is None and version.local is None
            return DirectoryBase(root, name, version, pristine, dist_info)
        if holds_vllm(path):
            message = f"{path} has a vllm/ that no installed distribution owns; reinstall vLLM"
            raise BaseError(message)
    return None


def _site_packages() -> list[Path]:
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    environment = os.environ.get("VIRTUAL_ENV")
    if environment:
        # The scheme has a name of its own only since Python 3.11.
        scheme = (
            "venv" if "venv" in sysconfig.get_scheme_names() else sysconfig.get_default_scheme()
        )
        variables = {"base": environment, "platbase": environment}
        places += [sysconfig.get_path(name, scheme, variables) for name in ("purelib", "platlib")]
    return [Path(place) for place in dict.fromkeys(places) if Path(place).is_dir()]


def is_isolated() -> bool:
    """Tell whether the build runs in an environment of its own, and cannot see the one that asks.

    pip's isolation leaves the interpreter of the environment in its place. uv and ``python -m
    build`` make a virtual environment for the build: uv says that it is the active one, ``build``
    leaves the user's, if one is active.
    """
    prefix = Path(sys.prefix).resolve()
    active = os.environ.get("VIRTUAL_ENV", "")
    if active and Path(active).resolve() != prefix:
        return False
    of_build = prefix.name.startswith("build-env-")
    of_uv = any(part.startswith("builds-v") for part in prefix.parts)
    return sys.prefix != sys.base_prefix and (of_build or of_uv)
