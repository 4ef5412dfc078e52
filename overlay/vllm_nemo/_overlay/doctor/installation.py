"""Checks of the vLLM that is installed: that it is the right one, and as its installer left it.

Each function makes one check, or yields those that apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_nemo._overlay import api
from vllm_nemo._overlay.doctor import record
from vllm_nemo._overlay.doctor.report import FAIL, OK, WARN, Check
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.installed import Installed, release_of
from vllm_nemo._overlay.stock import check_stock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_nemo._overlay.doctor.record import Recorded
    from vllm_nemo._overlay.doctor.report import Report
    from vllm_nemo._overlay.manifest import Manifest

# How many files a check names.
_FILES_SHOWN = 8


def vllm(report: Report, manifest: Manifest) -> Check:
    """Check that vLLM is installed and is the one that the overlay was built for.

    Args:
        report: Where the directory and the vLLM in it are noted.
        manifest: The overlay's manifest.
    """
    base = manifest.base
    try:
        report.directory = api.vllm_directory()
    except OverlayError as error:
        return Check("vllm", FAIL, str(error))
    if report.directory is None:
        return Check(
            "vllm",
            FAIL,
            "vLLM is not installed for this interpreter. The one that the overlay is for: "
            f'pip install "{base.distribution}=={base.version}"',
        )
    report.installed = Installed(report.directory)
    try:
        check_stock(manifest, report.directory)
    except OverlayError as error:
        return Check("vllm", FAIL, str(error))
    return Check(
        "vllm",
        OK,
        f"{report.installed} at {report.directory}, with the contents expected of {base.version}",
    )


def release(manifest: Manifest, installed: Installed, *, matches: bool) -> Iterator[Check]:
    """Compare the releases of vLLM and of the overlay: both may have the same patched files.

    Args:
        manifest: The overlay's manifest.
        installed: The vLLM that is installed.
        matches: Whether all files that the overlay replaces are the ones expected.
    """
    expected = release_of(manifest.base.version)
    found = installed.release
    if found is None or expected is None:
        return
    if found == expected:
        yield Check("release", OK, f"vLLM {found}, which the overlay is for")
        return
    yield Check(
        "release",
        WARN if matches else FAIL,
        f"the overlay is for vLLM {expected}, and {found} is installed"
        + ("; every file that is replaced is the same in both" if matches else "")
        + f'. The overlay for it: pip install "vllm-nemo=={found}.*"',
    )


def vllm_files(manifest: Manifest, directory: Path, installed: Installed) -> Iterator[Check]:
    """Check whether vLLM's files were edited after their installation, and what else has the edits.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.
        installed: The vLLM in it.

    Yields:
        A check of the files, and one more for each of several owners, a patcher's locks, and
        edited files that other environments have too.
    """
    stock = {(module.path, module.stock) for module in manifest.modules.values() if module.stock}
    recorded = record.compare(directory, installed.distributions, stock)
    names = [f"{name} {version}" for name, version in installed.owners]
    if len(names) > 1:
        yield _owners(directory, names, recorded)
    if not recorded.files:
        yield Check(
            "vllm files", OK, "no RECORD has hashes of them: an editable or hand-made install"
        )
    elif recorded.edited:
        yield Check(
            "vllm files",
            FAIL,
            f"{len(recorded.edited)} of {recorded.files} source files are not those that were "
            f"installed; something has edited them: {_some(recorded.edited)}. Reinstall "
            f"{' or '.join(names)} to have them as they were",
        )
    else:
        yield Check("vllm files", OK, f"{recorded.files} source files as they were installed")
    locks = record.locks(directory)
    if locks:
        yield _patcher(locks, recorded.edited)
    shared = record.shared(directory, recorded.edited)
    if shared:
        yield _shared(directory, shared, *installed.owners[0])


def _owners(directory: Path, names: list[str], recorded: Recorded) -> Check:
    whose = [name for name, wrong in zip(names, recorded.differing, strict=True) if not wrong]
    detail = f"{' and '.join(names)} both own {directory}"
    if recorded.files and not whose:
        return Check(
            "owners", FAIL, f"{detail}, and its files are a mixture; remove both, install one"
        )
    if recorded.files and len(whose) < len(names):
        detail += f", whose files are those of {' and '.join(whose)}"
    return Check(
        "owners",
        WARN,
        f"{detail}: whichever is installed or removed next changes the files of the other",
    )


def _patcher(locks: tuple[str, ...], edited: tuple[str, ...]) -> Check:
    """Explain lock files: NeMo-RL's own patcher takes one for each file that it rewrites."""
    patched = [lock for lock in locks if lock.removesuffix(record.LOCK) in edited]
    if patched:
        return Check(
            "run-time patcher",
            FAIL,
            f"NeMo-RL's patches.py has rewritten files here and would again: {_some(patched)}. "
            "Let NeMo-RL import vllm_nemo.nemo_rl in its place, and reinstall vLLM",
        )
    return Check(
        "run-time patcher",
        WARN,
        f"NeMo-RL's patches.py has run here: {_some(locks)}. The files beside them are as they "
        "were installed. If it is no longer used, delete the locks",
    )


def _shared(directory: Path, shared: tuple[str, ...], name: str, version: str) -> Check:
    cached = record.in_uv_cache(directory, shared[0])
    where = f"uv's cache ({cached})" if cached else "a package cache or another environment"
    return Check(
        "shared files",
        FAIL,
        f"{len(shared)} edited files are links to files that others have too: {_some(shared)}. "
        f"The edit is also in {where}: every environment that has its vLLM from there runs it, "
        "and a reinstallation brings it back. Empty the cache first, then reinstall in each:\n"
        f"  uv cache clean {name}\n"
        f'  uv pip install --reinstall --no-deps "{name}=={version}"',
    )


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - _FILES_SHOWN
    return ", ".join(paths[:_FILES_SHOWN]) + (f" and {more} more" if more > 0 else "")
