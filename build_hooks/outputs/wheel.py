"""The wheel: which files it has, and where they come from."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from build_hooks.errors import BuildError
from build_hooks.outputs import manifest, sbom

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from build_hooks.outputs.content import Content

_PACKAGE = "vllm_nemo"
_ACTIVATION = "vllm_nemo.pth"
_SBOM = "vllm-nemo.cdx.json"


def write(content: Content, directory: Path) -> dict[str, Path]:
    """Write every file of the wheel into a directory.

    hatchling adds METADATA, WHEEL, RECORD, entry points, our licence and the bill of materials.
    Files of the source tree are copied, because their modes would show in the wheel.

    Args:
        content: What the wheel is made of.
        directory: An empty directory.

    Returns:
        The paths of the files by their names in the wheel.

    Raises:
        OSError: if one cannot be written.
    """
    sources = content.project.queue
    contents = {
        path.relative_to(sources).as_posix(): path.read_bytes()
        for path in sorted(content.project.package.rglob("*"))
        if path.is_file() and path.suffix in (".py", ".typed", ".dat")
    }
    contents[_ACTIVATION] = (sources / _ACTIVATION).read_bytes()
    for queue in content.overlay.stack.queues[1:]:
        contents |= _packages(queue.directory / "python", contents)
    contents[f"{_PACKAGE}/manifest.json"] = manifest.dump(content, contents).encode()
    contents |= {f"{_PACKAGE}/_modules/{file.path}": file.served for file in content.overlay.files}
    version = content.identity.version
    contents[f"{_PACKAGE}-{version}.dist-info/licenses/vllm/LICENSE"] = content.licence
    files = {name: directory / name for name in contents}
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[name])
    return files


def _packages(directory: Path, taken: Mapping[str, bytes]) -> dict[str, bytes]:
    """Read the Python packages that a queue brings, which lie beside ours in the wheel.

    Raises:
        BuildError: if one has a name that is taken.
    """
    names = {name.split("/")[0] for name in taken} | {"vllm"}
    found = {}
    for path in sorted(directory.glob("*/**/*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(directory).as_posix()
            if name.split("/")[0] in names:
                raise BuildError(f"{path}: the wheel has a package of that name already")
            found[name] = path.read_bytes()
    return found


def write_sbom(content: Content, directory: Path) -> Path:
    """Write the bill of materials, which hatchling puts beside the metadata.

    Args:
        content: What the wheel is made of.
        directory: The directory to write it into.

    Returns:
        The file.

    Raises:
        OSError: if it cannot be written.
    """
    path = directory / _SBOM
    path.write_text(sbom.dump(content), encoding="utf-8")
    return path


def verify(path: Path, files: Mapping[str, Path]) -> None:
    """Check the finished wheel, and remove one that is not right.

    Args:
        path: The wheel.
        files: What ``write`` returned.

    Raises:
        BuildError: naming what is missing, and what does not belong.
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
            f"{path.name} is removed, because the build back end did not write what it was given: "
            f"missing are {missing}, foreign are {foreign}"
        )
