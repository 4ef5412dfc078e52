"""Reads a patch queue: ``series.toml`` and one directory a patch.

Reading collects every problem before it fails, so that one run tells all there is to mend.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from build_hooks.diffs.model import MAXIMUM_BYTES, DiffError
from build_hooks.diffs.reader import parse
from build_hooks.errors import Problem, QueueError
from build_hooks.files import read_regular
from build_hooks.queues import logic
from build_hooks.queues.fields import Fields
from build_hooks.queues.model import Patch, Queue, Variant
from build_hooks.releases import strict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from packaging.version import Version

# Names of directories, so no longer than any file system takes.
ID = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_MODULE = re.compile(r"vllm_nemo\.patches\.[a-z_0-9]+")
_SWITCH = re.compile(r"always|NRL_[A-Z0-9]+(_[A-Z0-9]+)*")
# Far above any file of a queue; a reader that never ends is no reader.
_MAXIMUM_BYTES = 1 << 20


def load(directory: Path) -> Queue:
    """Read the queue from a directory with ``series.toml`` and ``patches/``.

    Raises:
        QueueError: naming each file and field that breaks the format.
    """
    problems: list[Problem] = []
    series = _read(directory / "series.toml", directory, problems)
    releases: tuple[Version, ...] = ()
    revision = 0
    foreign = False
    if series is None:
        # What it would list is told all the same what is wrong with it.
        ids = sorted(path.name for path in directory.glob("patches/*"))
    else:
        table = Fields(series, "series.toml", problems)
        # Only a queue of others has a name: it is free of what this project asks of its own.
        foreign = bool(table.text("name", required=False))
        releases = table.releases("releases")
        revision = table.number("revision")
        ids = table.strings("patches")
        table.end()
        _compare(ids, directory, problems)
    patches = [
        _patch(name, directory, releases, problems, foreign=foreign)
        for name in dict.fromkeys(ids)
        if ID.fullmatch(name) and (directory / "patches" / name).is_dir()
    ]
    whole = tuple(patch for patch in patches if patch is not None)
    problems += _check_amends(whole)
    if not problems:
        problems += logic.strays(whole, directory / "vllm_nemo")
    if problems:
        raise QueueError(problems)
    return Queue(directory, releases, revision, whole)


def _read(path: Path, directory: Path, problems: list[Problem]) -> dict[str, Any] | None:
    name = path.relative_to(directory).as_posix()
    try:
        data = read_regular(path, _MAXIMUM_BYTES)
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
        if not ID.fullmatch(name):
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
    name: str,
    directory: Path,
    releases: Sequence[Version],
    problems: list[Problem],
    *,
    foreign: bool,
) -> Patch | None:
    home = directory / "patches" / name
    file = f"patches/{name}/patch.toml"
    before = len(problems)
    data = _read(home / "patch.toml", directory, problems)
    variants = _variants(home, directory, problems)
    if data is None:
        return None
    table = Fields(data, file, problems)
    patch = Patch(
        id=name,
        title=table.text("title"),
        why=table.text("why", required=not foreign),
        risk=table.text("risk", required=not foreign),
        removal=table.text("removal", required=not foreign),
        vllm=table.specifiers("vllm"),
        switch=table.text(
            "switch",
            required=not foreign,
            pattern=_SWITCH,
            meaning="'always' or an NRL_ variable",
        )
        or "always",
        module=table.text(
            "module", required=False, pattern=_MODULE, meaning="a module of vllm_nemo.patches"
        ),
        logic=table.text("logic", required=False),
        upstream=table.upstream("upstream"),
        amends=tuple(table.strings("amends", required=False)),
        ends=table.ends("ends"),
        not_needed=table.by_release("not-needed"),
        notes=table.by_release("notes"),
        variants=variants,
        review=tuple(table.strings("review", required=False)),
    )
    table.end()
    # Without the releases, whose fault is told, there is nothing to hold the patch against.
    if len(problems) == before and releases:
        problems += _check(patch, file, releases, foreign=foreign)
        problems += logic.check(patch, f"patches/{name}/", directory / "vllm_nemo")
    return patch if len(problems) == before else None


def _variants(home: Path, directory: Path, problems: list[Problem]) -> tuple[Variant, ...]:
    variants = []
    for path in sorted(home.iterdir()):
        name = path.relative_to(directory).as_posix()
        if path.name == "patch.toml":
            continue
        release = strict(path.stem) if path.suffix == ".patch" else None
        if release is None:
            problems.append(Problem(name, "", "is neither patch.toml nor <release>.patch"))
            continue
        try:
            data = read_regular(path, MAXIMUM_BYTES)
            variants.append(Variant(release, parse(data)))
        except OSError as error:
            problems.append(Problem(name, "", f"cannot be read: {error.strerror}"))
        except DiffError as error:
            problems += [
                Problem(name, f"line {line}" if line else "", message)
                for line, message in error.faults
            ]
    return tuple(sorted(variants, key=lambda variant: variant.release))


def _check(
    patch: Patch, file: str, releases: Sequence[Version], *, foreign: bool
) -> Iterable[Problem]:
    """Check what needs the patch as a whole: each release is served, each diff is used."""
    if not patch.variants:
        yield Problem(file, "", "there is no <release>.patch beside it")
        return
    used = set()
    for release in releases:
        reason = patch.not_needed.get(release)
        if patch.needed(release):
            diff = patch.diff(release)
            if diff is None:
                yield Problem(file, "vllm", f"needed for {release}, but no variant serves it")
            else:
                used |= {(since, path) for path, since in diff.variants.items()}
            if reason is not None:
                yield Problem(file, "not-needed", f"{release} lies inside the range {patch.vllm}")
        elif reason is None and not foreign:
            yield Problem(
                file, "not-needed", f"{release} lies outside the range {patch.vllm}: say why"
            )
    for field, given in (("not-needed", patch.not_needed), ("notes", patch.notes)):
        for release in given:
            if release not in releases:
                yield Problem(file, field, f"{release} is not a supported release")
    yield from _check_variants(patch, file.removesuffix("patch.toml"), used)
    changed = {file.path for variant in patch.variants for file in variant.files}
    for path in patch.ends:
        if path not in changed:
            yield Problem(file, "ends", f"no variant changes {path}")


def _check_amends(patches: Sequence[Patch]) -> Iterable[Problem]:
    """Check that a patch amends only such as come before it."""
    earlier: set[str] = set()
    for patch in patches:
        for other in patch.amends:
            if other not in earlier:
                message = f"{other!r} is no patch that comes before it"
                yield Problem(f"patches/{patch.id}/patch.toml", "amends", message)
        earlier.add(patch.id)


def _check_variants(
    patch: Patch, home: str, used: Collection[tuple[Version, str]]
) -> Iterable[Problem]:
    """Check that each diff of a file is used, and says something that the one before does not."""
    for variant in patch.variants:
        name = f"{home}{variant.release}.patch"
        before = patch.inherited(variant.release)
        older = {file.path: file for file in before.files} if before else {}
        for file in variant.files:
            if (variant.release, file.path) not in used:
                yield Problem(name, "", f"no supported release uses its diff of {file.path}")
            elif before and file.path in older and file.same_change(older[file.path]):
                since = before.variants[file.path]
                yield Problem(name, "", f"repeats the diff of {file.path} in {since}.patch")
