"""A base that is installed in the environment that runs the build."""

from __future__ import annotations

import os
import re
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
    the environment that pip runs in), the user's among them, then in those of the active virtual
    environment (``python -m build`` runs an interpreter of its own).

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
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if sys.base_prefix in site.PREFIXES:
        # Not in a virtual environment, or in one that shows what is outside of it. Whether the
        # user's packages are switched off cannot be told: pip's isolation switches them off too.
        before = 0 if sys.prefix == sys.base_prefix else len(places)
        places.insert(before, site.getusersitepackages())
    places += site.getsitepackages()
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
    leaves the user's, if one is active. Neither says that the environment is the build's, so that
    it is told by its place; ``build --env-dir`` puts it anywhere, and empties ``PYTHONPATH``.
    """
    prefix = Path(sys.prefix).resolve()
    active = os.environ.get("VIRTUAL_ENV", "")
    if active and Path(active).resolve() != prefix:
        return False
    variables = os.environ
    by_hooks = (
        "_PYPROJECT_HOOKS_BUILD_BACKEND" in variables and "PIP_BUILD_TRACKER" not in variables
    )
    of_build = by_hooks and variables.get("PYTHONPATH") == ""
    of_build = of_build or prefix.name.startswith("build-env-")
    of_uv = re.fullmatch(r"builds-v\d+", prefix.parent.name) is not None
    return sys.prefix != sys.base_prefix and (of_build or of_uv)
