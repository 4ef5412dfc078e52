"""Writes patches that came in into a queue: all of them, or none."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from build_hooks.errors import BuildError
from build_hooks.queues.reader import ID

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from packaging.version import Version

    from build_hooks.intake.arrival import Brought
    from build_hooks.intake.model import ForeignPatch

# The queue's format allows 64 characters; a name of a few words is read more easily.
_LONGEST = 48
# Characters of a queue's name, with room for the word that goes before a number.
_NAME = 24


def names(patches: Sequence[ForeignPatch], wanted: str | None, taken: Collection[str]) -> list[str]:
    """Give each patch an id.

    Args:
        patches: The patches that are to come in.
        wanted: The id of a single patch; None to make ids of the titles.
        taken: The ids that the queue has.

    Raises:
        BuildError: if the id is none, or the queue has it.
    """
    if wanted is not None:
        if len(patches) != 1:
            titles = "".join(f"\n  {patch.title}" for patch in patches)
            raise BuildError(f"--id goes with one patch; there are {len(patches)}:{titles}")
        if not ID.fullmatch(wanted):
            raise BuildError(
                f"{wanted!r} is not an id: lower-case words and hyphens, 64 characters at most"
            )
        found = [wanted]
    else:
        found = []
        for patch in patches:
            found.append(_unlike(_slug(patch.title), found))
    known = [name for name in found if name in taken]
    if known:
        raise BuildError(
            f"the queue has {', '.join(known)} already. To import it anew, take it out of "
            "series.toml and delete its directory; for another name, give --id"
        )
    return found


def _slug(title: str) -> str:
    """Make an id of a title: ``[Core] Fix the x (#123)`` is ``core-fix-the-x``."""
    plain = unicodedata.normalize("NFKD", re.sub(r"\(#\d+\)\s*$", "", title))
    words = re.findall(r"[a-z0-9]+", plain.encode("ascii", "ignore").decode().lower())
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:_LONGEST]
        if len(longer) > _LONGEST:
            break
        name = longer
    return name or "patch"


def _unlike(name: str, others: Collection[str]) -> str:
    """Put a number behind a name that another patch of the same import has."""
    number = 1
    unlike = name
    while unlike in others:
        number += 1
        unlike = f"{name}-{number}"
    return unlike


@dataclass(frozen=True)
class Target:
    """The queue that patches are written to; one that does not exist is made.

    Attributes:
        directory: Where it lies.
        release: The release that the patches are for.
    """

    directory: Path
    release: Version

    @property
    def series(self) -> Path:
        """The file with the order of the patches."""
        return self.directory / "series.toml"

    @property
    def exists(self) -> bool:
        """Whether there is a queue.

        Raises:
            BuildError: if there is something else.
        """
        if self.series.exists():
            return True
        if self.directory.exists() and (
            not self.directory.is_dir() or any(self.directory.iterdir())
        ):
            raise BuildError(f"{self.directory} is no queue (no series.toml), and not empty")
        return False

    def write(self, brought: Sequence[Brought]) -> list[Path]:
        """Write patches, and append them to the series.

        Args:
            brought: The patches, in order.

        Returns:
            The variant of each.

        Raises:
            BuildError: if they cannot be written; then nothing has changed.
        """
        made: list[Path] = []
        files = []
        new = not self.directory.exists()
        try:
            series = self._series([patch.id for patch in brought])
            for patch in brought:
                home = self.directory / "patches" / patch.id
                home.mkdir(parents=True)
                made.append(home)
                (home / "patch.toml").write_text(_metadata(patch, self.release), encoding="utf-8")
                file = home / f"{self.release}.patch"
                file.write_bytes(patch.text.encode())
                files.append(file)
            # What is not in the series is no part of the queue, so it comes last, and whole.
            scratch = self.directory / "series.toml.new"
            scratch.write_text(series, encoding="utf-8")
            os.replace(scratch, self.series)  # noqa: PTH105
        except OSError as error:
            for home in [self.directory] if new else made:
                shutil.rmtree(home, ignore_errors=True)
            raise BuildError(
                f"{error.filename or self.directory} cannot be written: {error.strerror}"
            ) from error
        return files

    def _series(self, ids: Sequence[str]) -> str:
        """Return series.toml with patches at its end; what a person wrote stays as it is."""
        if not self.series.exists():
            document = tomlkit.document()
            document["name"] = local(self.directory.resolve().name)
            document["revision"] = 1
            document["releases"] = [str(self.release)]
            document["patches"] = _lines(ids)
            return tomlkit.dumps(document)
        try:
            document = tomlkit.parse(self.series.read_text(encoding="utf-8"))
        except (TOMLKitError, ValueError) as error:
            raise BuildError(f"{self.series}: not TOML: {error}") from error
        patches = document["patches"]
        if not isinstance(patches, Array):
            raise BuildError(f"{self.series}: patches: must be a list of strings")
        for name in ids:
            patches.append(name)
        return tomlkit.dumps(document)


def local(name: str) -> str:
    """Make a name fit for the local part of a version: ``My_Queue`` is ``myqueue``.

    Args:
        name: The name of a directory.
    """
    word = re.sub(r"[^a-z0-9]", "", name.lower())[:_NAME]
    return word if word[:1].isalpha() else f"queue{word}"


def _lines(ids: Sequence[str]) -> Array:
    array = tomlkit.array()
    for name in ids:
        array.append(name)
    return array.multiline(multiline=True)


def _metadata(brought: Brought, release: Version) -> str:
    """Write a patch.toml with what the format asks for, and what the source says."""
    patch = brought.patch
    document = tomlkit.document()
    document.add(tomlkit.comment(_plain(f"Imported from {Path(patch.source).name}")))
    if patch.author:
        document.add(tomlkit.comment(_plain(f"Author: {patch.author}")))
    document["title"] = _plain(patch.title) or brought.id
    if patch.text:
        document["why"] = tomlkit.string(_printable(patch.text), multiline="\n" in patch.text)
    document["vllm"] = f">={release}"
    if brought.amends:
        document["amends"] = list(brought.amends)
    if brought.review:
        document.add(tomlkit.comment("Look at each of these, then take it out."))
        array = tomlkit.array()
        for entry in brought.review:
            array.append(entry)
        document["review"] = array.multiline(multiline=True)
    if brought.place:
        table = tomlkit.table()
        for path, answer in brought.place.items():
            table[path] = answer if isinstance(answer, str) else list(answer)
        document["place"] = table
    return tomlkit.dumps(document)


def _plain(text: str) -> str:
    """Make a text one line that TOML takes, in a comment too."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    clean = text.encode(errors="replace").decode()
    return "".join(c for c in clean if c.isprintable() or c in "\n\t")
