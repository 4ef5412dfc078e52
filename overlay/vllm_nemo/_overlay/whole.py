"""The overlay's own files, held against what was built: all, no others, and no other bytecode.

The served modules are only a part of a wheel: the logic of the patches, the machinery that serves
them and what activates it are files too, and so is the manifest, which its wheel's RECORD tells.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import sys
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_nemo._overlay import files
from vllm_nemo._overlay.content import FIRST
from vllm_nemo._overlay.errors import OverlayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_nemo._overlay.manifest import Manifest

MANIFEST = "vllm_nemo/manifest.json"

# Files that do not belong to the overlay: a reinstallation leaves them where they are.
_FOREIGN = (files.UNEXPECTED, files.STALE)


def check(manifest: Manifest) -> None:
    """Check every file of the overlay, also the served ones.

    Args:
        manifest: The overlay's manifest.

    Raises:
        OverlayError: naming each file that is not as it was built, and what repairs it.
    """
    served = {
        f"vllm_nemo/_modules/{file.path}": state
        for file in manifest.files
        if (state := files.file_state(manifest.served_file(file), file.served)) != files.OK
    }
    found = {**served, **damage(manifest)}
    if found:
        raise damaged(manifest, found)


def check_content(manifest: Manifest) -> None:
    """Check the content of what runs in this process, before vLLM does: the short form of a check.

    Args:
        manifest: The overlay's manifest.

    Raises:
        OverlayError: as ``check``.
    """
    found = {path: state for path, state in _changed(manifest) if "/" in path}
    if found:
        raise damaged(manifest, found)


def damage(manifest: Manifest) -> dict[str, str]:
    """Compare the overlay's own files with its manifest, and the manifest with RECORD.

    Args:
        manifest: The overlay's manifest.

    Returns:
        The state of each file that is not as it was built, by its path beside ``vllm_nemo``. States
        are words of ``files``.
    """
    # Imported here, because the first import of vLLM goes without it.
    from vllm_nemo._overlay import bytecode

    found = dict(_changed(manifest))
    root = manifest.directory.parent
    for path in manifest.own:
        if path.endswith(".py") and path not in found and not _goes_by_content(path):
            cached = bytecode.stale(str(root / path))
            if cached is not None:
                found[cached] = files.STALE
    for path in _added(manifest):
        found[path] = files.UNEXPECTED
    if not _is_recorded(manifest):
        found[MANIFEST] = files.UNRECORDED
    return found


def damaged(manifest: Manifest, found: Mapping[str, str]) -> OverlayError:
    """Return the error for an overlay that is not as it was built.

    Args:
        manifest: The overlay's manifest.
        found: The state of each file that is not, by its path.

    Returns:
        The error, to be raised.
    """
    return OverlayError(
        f"vllm-nemo {manifest.overlay} at {manifest.directory} is not as it was built:\n"
        + "".join(f"  {state}: {path}\n" for path, state in found.items())
        + repair(manifest, found)
    )


def repair(manifest: Manifest, found: Mapping[str, str]) -> str:
    """Return the commands that make the overlay what was built.

    Args:
        manifest: The overlay's manifest.
        found: The state of each file that is not as it was built, by its path.
    """
    root = manifest.directory.parent
    foreign = [path for path, state in found.items() if state in _FOREIGN]
    lines = []
    if foreign:
        listed = "".join(f'\n  rm -r "{root / path}"' for path in foreign)
        lines.append(f"Remove what no build made:{listed}")
    if len(foreign) < len(found):
        lines.append(manifest.repair)
    return "\n".join(lines)


def _changed(manifest: Manifest) -> Iterator[tuple[str, str]]:
    root = manifest.directory.parent
    # A frozen program starts no interpreter that would read what lies beside the package.
    frozen = getattr(sys, "frozen", False)
    for path, digest in manifest.own.items():
        if frozen and "/" not in path:
            continue
        state = files.file_state(root / path, digest)
        if state != files.OK:
            yield path, state


def _goes_by_content(path: str) -> bool:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name.startswith("vllm_nemo.") and name not in FIRST


def _added(manifest: Manifest) -> Iterator[str]:
    """Find what Python could import from the overlay's packages, and no build has put there.

    A directory of the overlay that is no package may belong to others as well.
    """
    root = manifest.directory.parent
    known = {*manifest.own, *(f"vllm_nemo/_modules/{file.path}" for file in manifest.files)}
    directories = {parent for path in known for parent in _parents(path)}
    packages = {path.rpartition("/")[0] for path in manifest.own if path.endswith("/__init__.py")}
    suffixes = tuple(all_suffixes())
    for directory in sorted(directories):
        if not packages.intersection([directory, *_parents(directory)]):
            continue
        for entry in _entries(root / directory):
            path = f"{directory}/{entry.name}"
            if path in known or path in directories or entry.name == "__pycache__":
                continue
            # Of other names nothing can be imported: what editors and file systems leave behind.
            if not entry.name.partition(".")[0].isidentifier():
                continue
            # Bytecode beside its source file (`compileall -b`) is taken only where that is gone.
            if path.endswith(".pyc") and path[:-1] in known:
                continue
            if _holds_code(entry, suffixes):
                yield path


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    # What is missing, or no directory, is told of its files.
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _holds_code(entry: os.DirEntry[str], suffixes: tuple[str, ...]) -> bool:
    if not entry.is_dir():
        return entry.name.endswith(suffixes)
    return any(name.endswith(suffixes) for _, _, names in os.walk(entry.path) for name in names)


def _is_recorded(manifest: Manifest) -> bool:
    """Tell whether an installer has recorded this manifest, or has recorded none.

    Where one wheel was unpacked over another, both have left a record.
    """
    root = manifest.directory.parent
    try:
        digest = hashlib.sha256((manifest.directory / "manifest.json").read_bytes()).digest()
    except OSError:
        return False
    told = binascii.b2a_base64(digest, newline=False).decode()
    expected = told.rstrip("=").replace("+", "-").replace("/", "_")
    recorded = _recorded(root / f"vllm_nemo-{manifest.overlay}.dist-info")
    if recorded == expected:
        return True
    others = [
        Path(entry.path)
        for entry in _entries(root)
        if entry.name.startswith("vllm_nemo-") and entry.name.endswith(".dist-info")
    ]
    hashes = {found for info in others if (found := _recorded(info)) is not None}
    return not hashes or expected in hashes


def _recorded(info: Path) -> str | None:
    """Read from RECORD what the hash of the manifest is."""
    prefix = f"{MANIFEST},sha256="
    try:
        text = (info / "RECORD").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(prefix):
            return line[len(prefix) :].partition(",")[0]
    return None
