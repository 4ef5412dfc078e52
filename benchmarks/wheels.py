"""Wheels and trees made on the spot from the files that the overlay patches."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.context import Context, site_packages


def patched(context: Context) -> dict[str, tuple[bytes, bytes]]:
    """Return the modules that the overlay changes: path, what vLLM has, what the overlay serves."""
    overlay = site_packages(context.overlaid) / "vllm_nemo"
    stock = site_packages(context.plain)
    manifest = json.loads((overlay / "manifest.json").read_text(encoding="utf-8"))
    return {
        module["path"]: (
            (stock / module["path"]).read_bytes(),
            (overlay / "_modules" / module["path"]).read_bytes(),
        )
        for module in manifest["modules"].values()
        if module["stock"]
    }


def write(directory: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """Write a pure wheel of these files, its metadata among them if they are not just a name."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: benchmarks\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": tags.encode(), **files}
    record = ""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            archive.writestr(member, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{member},sha256={digest},{len(data)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


def revised(wheel: Path, directory: Path) -> Path:
    """Write an overlay wheel again as its next revision, with the same files."""
    name, old = wheel.name.split("-")[:2]
    release, _, revision = old.rpartition(".")
    new = f"{release}.{int(revision) + 1}"
    with zipfile.ZipFile(wheel) as archive:
        files = {
            member.replace(f"{name}-{old}.dist-info", f"{name}-{new}.dist-info"): archive.read(
                member
            )
            for member in archive.namelist()
            if not member.endswith(".dist-info/RECORD")
        }
    metadata = f"{name}-{new}.dist-info/METADATA"
    files[metadata] = files[metadata].replace(
        f"Version: {old}".encode(), f"Version: {new}".encode()
    )
    return write(directory, name, new, files)
