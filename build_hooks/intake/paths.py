"""Which file of vLLM a path in a foreign diff means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from build_hooks.intake.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from build_hooks.intake.model import Section

_PACKAGE = "vllm/"
# `diff -u x.py.orig x.py`
_COPIES = (".orig", ".old", ".bak", ".new", "~")


@dataclass(frozen=True)
class Reading:
    """How paths are read: so many components taken off, and a prefix put before the rest."""

    strip: int = 1
    prefix: str = ""

    def of(self, path: str) -> str | None:
        """Return the path as read; None if it has no component left.

        Args:
            path: The path, as the patch has it.
        """
        parts = _parts(path)[self.strip :]
        return self.prefix + "/".join(parts) if parts else None


def _parts(path: str) -> list[str]:
    if "/" not in path:
        path = path.replace("\\", "/")
    return [part for part in path.split("/") if part not in ("", ".")]


def detect(
    sections: Sequence[Section],
    exists: Callable[[str], bool],
    strip: int | None = None,
    prefix: str | None = None,
) -> Reading:
    """Find out how the paths of a source are to be read.

    Of all ways, the one that makes most of the changed files exist; of equal ones, the one that
    makes most paths ``vllm/...``, and that takes one component off, as git writes diffs. A prefix
    is only put before paths if all of the files exist then.

    Args:
        sections: All sections of the source.
        exists: Tells whether the base has a file.
        strip: Take off so many components; None to find out.
        prefix: Put this before; None to find out.
    """
    depth = max((len(_parts(p)) for s in sections for p in (s.old, s.new) if p), default=1)
    strips = range(depth) if strip is None else [strip]
    prefixes = ["", _PACKAGE] if prefix is None else [_slash(prefix)]
    ways = [Reading(n, text) for text in prefixes for n in strips]
    added = {path for s in sections if s.adds for path in (s.new,) if path}
    changed = [s for s in sections if not s.adds and s.new not in added]

    def score(way: Reading) -> tuple[int, int, bool, bool, int]:
        found = sum(exists(path_of(section, way, exists)) for section in changed)
        if prefix is None and way.prefix and not 0 < found == len(changed):
            return (-1, 0, False, False, 0)
        inside = sum(path_of(section, way, exists).startswith(_PACKAGE) for section in sections)
        return (found, inside, not way.prefix, way.strip == 1, -way.strip)

    return max(ways, key=score)


def path_of(section: Section, way: Reading, exists: Callable[[str], bool]) -> str:
    """Return the file that a section means, the one that exists if its two names differ.

    Args:
        section: The change of one file.
        way: How the paths of the patch are read.
        exists: Tells whether the base has a file.
    """
    names = [name for name in (section.new, section.old) if name is not None]
    if section.kind in (Kind.RENAME, Kind.COPY):
        names = names[:1]
    read = [way.of(name) or name for name in names]
    read += [name.removesuffix(end) for name in read for end in _COPIES if name.endswith(end)]
    return next((path for path in read if exists(path)), read[0])


def _slash(prefix: str) -> str:
    return prefix.rstrip("/") + "/" if prefix.strip("/") else ""
