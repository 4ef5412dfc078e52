"""What a port has inferred: entries under ``review`` in patch.toml, until a person confirms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from build_hooks.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from build_hooks.queues.model import Patch


def ask(patch: Patch, release: Version, entries: Sequence[str]) -> None:
    """Have a person look at what was inferred for a release.

    Args:
        patch: The patch.
        release: The release of the variant.
        entries: What was placed where.

    Raises:
        BuildError: if tomlkit is not installed.
        OSError: if patch.toml cannot be read or written.
    """
    mine = [f"{_mark(release)}{entry}" for entry in entries]
    _write(patch, [*(entry for entry in patch.review if entry not in mine), *mine])


def confirm(patch: Patch, release: Version) -> int:
    """Take out what a person has looked at.

    Args:
        patch: The patch.
        release: The release of the variant.

    Returns:
        How many entries were taken out.

    Raises:
        BuildError: if tomlkit is not installed.
        OSError: if patch.toml cannot be read or written.
    """
    kept = [entry for entry in patch.review if not entry.startswith(_mark(release))]
    if len(kept) < len(patch.review):
        _write(patch, kept)
    return len(patch.review) - len(kept)


def _mark(release: Version) -> str:
    return f"{release}.patch: "


def _write(patch: Patch, entries: Sequence[str]) -> None:
    try:
        import tomlkit
    except ModuleNotFoundError as error:
        raise BuildError("reviews need tomlkit: use ci/queue, which brings it") from error
    file = patch.directory / "patch.toml"
    document: Any = tomlkit.parse(file.read_text(encoding="utf-8"))
    document.pop("review", None)
    if entries:
        array = tomlkit.array()
        for entry in entries:
            array.append(entry)
        # Fields of the patch itself come before its tables.
        tables = [key for key, value in document.items() if isinstance(value, dict | list)]
        rest = {key: document.pop(key) for key in tables}
        document["review"] = array.multiline(multiline=True)
        for key, value in rest.items():
            document[key] = value
    file.write_text(tomlkit.dumps(document), encoding="utf-8")
