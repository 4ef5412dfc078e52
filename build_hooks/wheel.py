"""The wheel's content: which files it has, where they come from, and what a build tells."""

from __future__ import annotations

import zipfile
from itertools import groupby
from typing import TYPE_CHECKING

from build_hooks import manifest, sbom, table
from build_hooks.errors import BuildError
from build_hooks.plan import OVERLAY, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from build_hooks.assemble import Outcome

_PACKAGE = "vllm_nemo"
_ACTIVATION = ("vllm_nemo.pth", "vllm_nemo.start")
SBOM = "vllm-nemo.cdx.json"


def stage(plan: Plan, directory: Path) -> dict[str, Path]:
    """Write every file of the wheel into ``directory``; return their paths by the names in it.

    hatchling adds METADATA, WHEEL, RECORD, entry points, our licence and the bill of materials.
    Files of the source tree are copied, for their modes would show in the wheel.
    """
    contents = {
        path.relative_to(OVERLAY).as_posix(): path.read_bytes()
        for path in sorted((OVERLAY / _PACKAGE).rglob("*"))
        if path.is_file() and path.suffix in (".py", ".typed")
    }
    contents |= {name: (OVERLAY / name).read_bytes() for name in _ACTIVATION}
    dist_info = f"{_PACKAGE}-{plan.identity.version}.dist-info"
    contents |= {
        f"{_PACKAGE}/_modules/{module.path}": module.served for module in plan.overlay.modules
    }
    contents[f"{_PACKAGE}/manifest.json"] = manifest.dump(
        plan.overlay, plan.identity.version, locked=plan.locked
    ).encode()
    contents[f"{dist_info}/licenses/vllm/LICENSE"] = plan.licence
    files = {name: directory / name for name in contents}
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[name])
    return files


def stage_sbom(plan: Plan, directory: Path) -> Path:
    """Write the bill of materials, which hatchling puts beside the metadata."""
    path = directory / SBOM
    path.write_text(sbom.dump(plan.overlay, plan.identity.version), encoding="utf-8")
    return path


def verify(path: Path, files: Mapping[str, Path]) -> None:
    """Check the finished wheel; one that is not right is removed.

    Raises:
        BuildError: naming what is missing or does not belong.
    """
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    # Our licences lie in the directory that hatchling writes its metadata to, or the names differ.
    dist_info = {name.split("/")[0] for name in files if ".dist-info/" in name}
    missing = sorted(set(files) - names)
    foreign = sorted(n for n in names - set(files) if n.split("/")[0] not in dist_info)
    if missing or foreign:
        path.unlink()
        raise BuildError(
            f"{path.name} was not right and is removed: lacks {missing}, has {foreign}"
        )


def report(plan: Plan) -> str:
    """Tell what was built: a row a patch."""
    base = plan.overlay.base
    mark = "" if plan.locked else ", unlocked"
    title = f"vllm-nemo {plan.identity.version} for vLLM {base.version} ({base.origin}{mark})"
    rows = [row for outcome in plan.overlay.outcomes for row in _rows(outcome)]
    shown = table.render(("patch", "outcome", "files", "offsets"), rows)
    return f"{title}\n\n{shown}\n"


def _rows(outcome: Outcome) -> list[tuple[str, str, str, str]]:
    """Give a row for each file of a patch, or one that says why there is none."""
    name, state = outcome.patch.id, outcome.outcome
    if not outcome.offsets:
        return [(name, state, outcome.reason, "")]
    rows = [(path, _runs(offsets)) for path, offsets in sorted(outcome.offsets.items())]
    if outcome.note:
        rows.append((f"note: {outcome.note}", ""))
    names = [(name, state)] + [("", "")] * (len(rows) - 1)
    return [(*left, *right) for left, right in zip(names, rows, strict=True)]


def _runs(offsets: Sequence[int]) -> str:
    """Write offsets hunk by hunk, equal neighbours together: ``0 x3, +20``."""
    runs = [(f"{offset:+d}" if offset else "0", len(list(run))) for offset, run in groupby(offsets)]
    return ", ".join(text if times == 1 else f"{text} x{times}" for text, times in runs)
