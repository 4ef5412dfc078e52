"""The patch queue: ``series.toml`` and one directory a patch, read strictly.

Reading collects every problem before it fails, so that one run tells all there is to mend.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from build_hooks import diff, files
from build_hooks.errors import Problem, QueueError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Names of directories, so no longer than any file system takes.
_ID = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_SWITCH = re.compile(r"always|NRL_[A-Z0-9]+(_[A-Z0-9]+)*")
_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{7,40})", re.ASCII)
_KIND = re.compile("issue|pull|commit")
# Far above any file of a queue; a reader that never ends is no reader.
_MAXIMUM_BYTES = 1 << 20


@dataclass(frozen=True)
class Upstream:
    """A public issue, pull request or commit that a patch answers to."""

    kind: str
    ref: str
    note: str
    fixed_in: Version | None

    @property
    def url(self) -> str:
        """Return the page of the reference."""
        repository, name = re.split("[#@]", self.ref, maxsplit=1)
        kind = {"issue": "issues", "pull": "pull", "commit": "commit"}[self.kind]
        return f"https://github.com/{repository}/{kind}/{name}"


@dataclass(frozen=True)
class Variant:
    """One diff of a patch, used from ``release`` on until the next variant."""

    release: Version
    data: bytes
    files: tuple[diff.FileDiff, ...]


@dataclass(frozen=True)
class Patch:
    """One patch of the queue, as ``patch.toml`` and its diffs tell it."""

    id: str
    title: str
    why: str
    risk: str
    removal: str
    vllm: SpecifierSet
    switch: str
    logic: str
    upstream: tuple[Upstream, ...]
    not_needed: Mapping[Version, str]
    notes: Mapping[Version, str]
    variants: tuple[Variant, ...]

    def needed(self, release: Version) -> bool:
        """Tell whether a release, or a build that is newer than one, lies in the patch's range."""
        return self.vllm.contains(_final(release), prereleases=True)

    def variant(self, release: Version) -> Variant | None:
        """Return the variant for a release: the newest that is not newer than it."""
        older = [v for v in self.variants if v.release <= _final(release)]
        return older[-1] if older else None

    def reason(self, release: Version) -> str:
        """Tell why the patch is not needed for a release: its own entry, else the one before."""
        older = [known for known in self.not_needed if known <= _final(release)]
        return self.not_needed[max(older)] if older else f"outside the range {self.vllm}"


@dataclass(frozen=True)
class Queue:
    """The whole queue: supported releases, revision, and the patches in their order."""

    releases: tuple[Version, ...]
    revision: int
    patches: tuple[Patch, ...]


def _final(release: Version) -> Version:
    """Return the release that a development, local or pre-release version belongs to."""
    return Version(release.base_version)


def load(directory: Path) -> Queue:
    """Read the queue from a directory with ``series.toml`` and ``patches/``.

    Raises:
        QueueError: naming each file and field that breaks the format.
    """
    problems: list[Problem] = []
    series = _read(directory / "series.toml", directory, problems)
    releases: tuple[Version, ...] = ()
    revision = 0
    if series is None:
        # What it would list is told all the same what is wrong with it.
        ids = sorted(path.name for path in directory.glob("patches/*"))
    else:
        table = _Table(series, "series.toml", problems)
        releases = table.releases("releases")
        revision = table.number("revision")
        ids = table.strings("patches")
        table.end()
        _compare(ids, directory, problems)
    patches = [
        _patch(name, directory, releases, problems)
        for name in dict.fromkeys(ids)
        if _ID.fullmatch(name) and (directory / "patches" / name).is_dir()
    ]
    if problems:
        raise QueueError(problems)
    return Queue(releases, revision, tuple(patch for patch in patches if patch is not None))


def _read(path: Path, directory: Path, problems: list[Problem]) -> dict[str, Any] | None:
    name = path.relative_to(directory).as_posix()
    try:
        data = files.read(path, _MAXIMUM_BYTES)
    except OSError as error:
        problems.append(Problem(name, "", f"cannot be read: {error.strerror}"))
        return None
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        # A number of too many digits is a plain ValueError.
        problems.append(Problem(name, "", f"not TOML: {error or type(error).__name__}"))
        return None


def _compare(ids: Sequence[str], directory: Path, problems: list[Problem]) -> None:
    """Hold the series' list against the directories."""
    for name, times in Counter(ids).items():
        if times > 1:
            problems.append(Problem("series.toml", "patches", f"lists {name!r} {times} times"))
        if not _ID.fullmatch(name):
            message = f"{name!r} is not an id: lower-case words and hyphens, 64 characters at most"
            problems.append(Problem("series.toml", "patches", message))
        elif not (directory / "patches" / name).is_dir():
            message = f"lists {name!r}, but patches/{name}/ is missing"
            problems.append(Problem("series.toml", "patches", message))
    root = directory / "patches"
    problems += [
        Problem(f"patches/{entry.name}", "", "is not listed in series.toml")
        for entry in (sorted(root.iterdir()) if root.is_dir() else ())
        if entry.name not in ids
    ]


def _patch(
    name: str, directory: Path, releases: Sequence[Version], problems: list[Problem]
) -> Patch | None:
    home = directory / "patches" / name
    file = f"patches/{name}/patch.toml"
    before = len(problems)
    data = _read(home / "patch.toml", directory, problems)
    variants = _variants(home, directory, problems)
    if data is None:
        return None
    table = _Table(data, file, problems)
    patch = Patch(
        id=name,
        title=table.text("title"),
        why=table.text("why"),
        risk=table.text("risk"),
        removal=table.text("removal"),
        vllm=table.specifiers("vllm"),
        switch=table.text("switch", pattern=_SWITCH, meaning="'always' or an NRL_ variable"),
        logic=table.text("logic", required=False),
        upstream=table.upstream("upstream"),
        not_needed=table.by_release("not-needed"),
        notes=table.by_release("notes"),
        variants=variants,
    )
    table.end()
    # Without the releases, whose fault is told, there is nothing to hold the patch against.
    if len(problems) == before and releases:
        problems += _check(patch, file, releases)
    return patch if len(problems) == before else None


def _variants(home: Path, directory: Path, problems: list[Problem]) -> tuple[Variant, ...]:
    variants = []
    for path in sorted(home.iterdir()):
        name = path.relative_to(directory).as_posix()
        if path.name == "patch.toml":
            continue
        release = _release(path.stem) if path.suffix == ".patch" else None
        if release is None:
            problems.append(Problem(name, "", "is neither patch.toml nor <release>.patch"))
            continue
        try:
            data = files.read(path, diff.MAXIMUM_BYTES)
            variants.append(Variant(release, data, diff.parse(data)))
        except OSError as error:
            problems.append(Problem(name, "", f"cannot be read: {error.strerror}"))
        except diff.DiffError as error:
            problems += [
                Problem(name, f"line {line}" if line else "", message)
                for line, message in error.faults
            ]
    return tuple(sorted(variants, key=lambda variant: variant.release))


def _check(patch: Patch, file: str, releases: Sequence[Version]) -> Iterable[Problem]:
    """Check what needs the patch as a whole: each release is served, each variant is used."""
    used = set()
    if not patch.variants:
        yield Problem(file, "", "there is no <release>.patch beside it")
        return
    for release in releases:
        reason = patch.not_needed.get(release)
        if patch.needed(release):
            variant = patch.variant(release)
            if variant is None:
                yield Problem(file, "vllm", f"needed for {release}, but no variant serves it")
            else:
                used.add(variant.release)
            if reason is not None:
                yield Problem(file, "not-needed", f"{release} lies inside the range {patch.vllm}")
        elif reason is None:
            yield Problem(
                file, "not-needed", f"{release} lies outside the range {patch.vllm}: say why"
            )
    for field, given in (("not-needed", patch.not_needed), ("notes", patch.notes)):
        for release in given:
            if release not in releases:
                yield Problem(file, field, f"{release} is not a supported release")
    for variant in patch.variants:
        if variant.release not in used:
            name = f"{file.removesuffix('patch.toml')}{variant.release}.patch"
            yield Problem(name, "", "no supported release uses this variant")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:
        # InvalidVersion, or a number of too many digits.
        return None


def _release(text: str) -> Version | None:
    """Read a release of vLLM, which has three components, written as vLLM writes it."""
    version = _version(text)
    wanted = version is not None and len(version.release) == 3 and version == _final(version)
    return version if wanted and str(version) == text else None


class _Table:
    """Reads fields of one TOML table; what is wrong goes to ``problems``."""

    def __init__(self, data: Mapping[str, Any], file: str, problems: list[Problem]) -> None:
        self._data = data
        self._file = file
        self._problems = problems
        self._known: set[str] = set()

    def _fault(self, field: str, message: str) -> None:
        self._problems.append(Problem(self._file, field, message))

    def _get(self, field: str, kind: type, noun: str, *, required: bool = True) -> Any:  # noqa: ANN401
        self._known.add(field)
        if field not in self._data:
            if required:
                self._fault(field, "is missing")
            return kind()
        value = self._data[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            self._fault(field, f"must be {noun}")
            return kind()
        return value

    def end(self) -> None:
        """Refuse fields that nobody asked for: a misspelt one would be ignored in silence."""
        for field in self._data:
            if field not in self._known:
                self._fault(field, f"is unknown; known are {', '.join(sorted(self._known))}")

    def text(
        self,
        field: str,
        *,
        required: bool = True,
        pattern: re.Pattern[str] | None = None,
        meaning: str = "",
    ) -> str:
        before = len(self._problems)
        value: str = self._get(field, str, "a string", required=required).strip()
        if len(self._problems) > before:
            return ""
        if not value and field in self._data:
            self._fault(field, "is empty")
        elif pattern and value and not pattern.fullmatch(value):
            self._fault(field, f"must be {meaning}, not {value!r}")
        return value

    def number(self, field: str) -> int:
        before = len(self._problems)
        value: int = self._get(field, int, "a whole number")
        if len(self._problems) == before and value < 1:
            self._fault(field, "must be 1 or more")
        return value

    def strings(self, field: str) -> list[str]:
        value = self._get(field, list, "a list of strings")
        if not all(isinstance(item, str) for item in value):
            self._fault(field, "must be a list of strings")
            return []
        return list(value)

    def releases(self, field: str) -> tuple[Version, ...]:
        before = len(self._problems)
        found = []
        for text in self.strings(field):
            release = _release(text)
            if release is None:
                self._fault(field, f"{text!r} is not a release such as 0.29.0")
            else:
                found.append(release)
        if found != sorted(set(found)):
            self._fault(field, "must be in ascending order, each once")
        if not found and len(self._problems) == before:
            self._fault(field, "names no release")
        return tuple(found)

    def specifiers(self, field: str) -> SpecifierSet:
        text = self.text(field)
        try:
            found = SpecifierSet(text)
            found.contains(Version("0"))
        except ValueError:
            # InvalidSpecifier, or a number of too many digits, which is read only when needed.
            self._fault(field, f"{text!r} is not a version range such as >=0.25.0,<0.29")
            return SpecifierSet()
        return found

    def by_release(self, field: str) -> dict[Version, str]:
        found = {}
        for text, value in self._get(field, dict, "a table", required=False).items():
            release = _release(text)
            if release is None:
                self._fault(field, f"{text!r} is not a release such as 0.29.0")
            elif not isinstance(value, str) or not value.strip():
                self._fault(f"{field}.{text}", "must be a reason, in words")
            else:
                found[release] = value.strip()
        return found

    def upstream(self, field: str) -> tuple[Upstream, ...]:
        found = []
        for number, entry in enumerate(self._get(field, list, "a list", required=False), 1):
            where = f"{field}[{number}]"
            if not isinstance(entry, dict):
                self._fault(where, "must be a table")
                continue
            before = len(self._problems)
            table = _Table(entry, f"{self._file}: {where}", self._problems)
            kind = table.text("kind", pattern=_KIND, meaning="issue, pull or commit")
            ref = table.text("ref", pattern=_REFERENCE, meaning="owner/repository#1 or @commit")
            note = table.text("note", required=False)
            fixed = table.text("fixed-in", required=False)
            table.end()
            if fixed and _version(fixed) is None:
                table._fault("fixed-in", f"{fixed!r} is not a release")
            if len(self._problems) == before:
                found.append(Upstream(kind, ref, note, _version(fixed) if fixed else None))
        return tuple(found)
