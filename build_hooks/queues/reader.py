"""Reads a patch queue: ``series.toml`` and one directory a patch.

Reading collects every problem before it fails, so that one run tells all there is to mend.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from build_hooks.diffs.model import MAXIMUM_BYTES, DiffError
from build_hooks.diffs.reader import parse
from build_hooks.errors import Problem, QueueError
from build_hooks.files import read_regular
from build_hooks.queues import logic
from build_hooks.queues.fields import ONE_LINE, Fields
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
# The local part of a version, as PEP 440 has it, and no number alone.
_NAME = re.compile(r"(?=.{1,32}\Z)[a-z][a-z0-9]*")
# The project's own queue.
OWN = "nemo"
# Far above any file of a queue; a reader that never ends is no reader.
_MAXIMUM_BYTES = 1 << 20


@dataclass(frozen=True)
class Series:
    """What ``series.toml`` says for each of its patches."""

    name: str
    directory: Path
    releases: tuple[Version, ...]
    requires: tuple[str, ...]
    own: bool

    @property
    def packages(self) -> dict[str, Path]:
        """The Python packages whose sources lie with the queue, by their names."""
        if self.own:
            return {"vllm_nemo": self.directory / "vllm_nemo"}
        roots = sorted((self.directory / "python").glob("*/__init__.py"))
        return {root.parent.name: root.parent for root in roots}


def load(directory: Path, *, own: bool = True) -> Queue:
    """Read a queue that has to be whole.

    Args:
        directory: Where the queue lies.
        own: Whether it is the project's own queue.

    Returns:
        The queue.

    Raises:
        QueueError: naming each file and field that breaks the format.
    """
    queue = read(directory, own=own)
    problems = [problem for faults in queue.faults.values() for problem in faults]
    if problems:
        raise QueueError(problems)
    return queue


def read(directory: Path, *, own: bool = True) -> Queue:
    """Read a queue from a directory with ``series.toml`` and ``patches/``.

    A patch that breaks the format is left out, and its faults are told in the queue: whoever needs
    it, or the whole queue, asks for that (``queues.stack``).

    Args:
        directory: Where the queue lies.
        own: Whether it is the project's own queue, which owes more to its readers: reasons, the
            risk, when a patch can go, and logic in the module of its name.

    Raises:
        QueueError: if there is no queue, or ``series.toml`` is not one.
    """
    problems: list[Problem] = []
    series = _read(directory / "series.toml", directory, problems)
    if series is None:
        # What it would list is told all the same what is wrong with it.
        for path in sorted(directory.glob("patches/*")):
            _patch(path.name, Series(OWN, directory, (), (), own=own), problems)
        raise QueueError(problems)
    table = Fields(series, "series.toml", problems)
    name = OWN if own else table.text("name", pattern=_NAME, meaning="a word such as acme")
    header = Series(
        name,
        directory,
        table.releases("releases"),
        tuple(table.requirements("requires")),
        own=own,
    )
    revision = table.number("revision")
    proof = table.proof("proof")
    ids = table.strings("patches")
    table.end()
    _compare(ids, directory, problems)
    patches = [
        patch
        for id_ in dict.fromkeys(ids)
        if ID.fullmatch(id_) and (directory / "patches" / id_).is_dir()
        if (patch := _patch(id_, header, problems)) is not None
    ]
    problems += _check_order(patches, own=own)
    if own and not problems:
        problems += logic.strays(patches, directory / "vllm_nemo")
    faults: dict[str, list[Problem]] = {}
    for problem in problems:
        faults.setdefault(_patch_of(problem), []).append(problem)
    return Queue(
        directory,
        name,
        header.releases,
        revision,
        header.requires,
        tuple(patch for patch in patches if patch.id not in faults),
        {id_: tuple(found) for id_, found in faults.items()},
        proof,
    )


def _patch_of(problem: Problem) -> str:
    """Return the id of the patch that a problem is about; empty for the queue itself."""
    parts = problem.file.split("/")
    return parts[1] if parts[0] == "patches" and len(parts) > 2 else ""


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


def _patch(name: str, series: Series, problems: list[Problem]) -> Patch | None:
    home = series.directory / "patches" / name
    file = f"patches/{name}/patch.toml"
    before = len(problems)
    data = _read(home / "patch.toml", series.directory, problems)
    variants = _variants(home, series.directory, problems)
    if data is None:
        return None
    table = Fields(data, file, problems)
    own = series.own
    patch = Patch(
        id=name,
        queue=series.name,
        directory=home,
        releases=series.releases,
        title=table.text("title", pattern=ONE_LINE, meaning="one line"),
        why=table.text("why", required=own),
        risk=table.text("risk", required=own),
        removal=table.text("removal", required=own),
        vllm=table.specifiers("vllm"),
        switch=table.text(
            "switch",
            required=own,
            pattern=_SWITCH if own else None,
            meaning="'always' or an NRL_ variable",
        )
        or "always",
        module=table.text(
            "module",
            required=False,
            pattern=_MODULE if own else None,
            meaning="a module of vllm_nemo.patches",
        ),
        logic=table.text("logic", required=False),
        upstream=table.upstream("upstream", strict=own),
        amends=tuple(table.strings("amends", required=False)),
        needs=tuple(table.strings("needs", required=False)),
        requires=tuple(table.requirements("requires")),
        ends=table.ends("ends"),
        place=table.places("place"),
        not_needed=table.by_release("not-needed"),
        notes=table.by_release("notes"),
        variants=variants,
        review=tuple(table.strings("review", required=False)),
        proof=table.proof("proof"),
        remove_when=table.conditions("remove-when"),
    )
    table.end()
    # Without the releases, whose fault is told, there is nothing to hold the patch against.
    if len(problems) == before and series.releases:
        problems += _check(patch, file, own=own)
        problems += logic.check(patch, f"patches/{name}/", series.packages, own=own)
        if own:
            problems += logic.large(patch, f"patches/{name}/")
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


def _check(patch: Patch, file: str, *, own: bool) -> Iterable[Problem]:
    """Check what needs the patch as a whole: each release is served, each diff is used."""
    if not patch.variants:
        yield Problem(file, "", "there is no <release>.patch beside it")
        return
    used = set()
    for release in patch.releases:
        reason = patch.not_needed.get(release)
        if patch.needed(release):
            diff = patch.diff(release)
            if diff is None:
                yield Problem(file, "vllm", f"needed for {release}, but no variant serves it")
            else:
                used |= {(since, path) for path, since in diff.variants.items()}
            if reason is not None:
                yield Problem(file, "not-needed", f"{release} lies inside the range {patch.vllm}")
        elif reason is None and own:
            yield Problem(
                file, "not-needed", f"{release} lies outside the range {patch.vllm}: say why"
            )
    for field, given in (
        ("not-needed", patch.not_needed),
        ("notes", patch.notes),
        ("ends", patch.ends.values()),
    ):
        for release in given:
            if release not in patch.releases:
                yield Problem(file, field, f"{release} is not a supported release")
    yield from _check_variants(patch, file.removesuffix("patch.toml"), used)
    for path, end in patch.ends.items():
        changed = {v.release for v in patch.variants for diff in v.files if diff.path == path}
        if not any(release < end for release in changed):
            yield Problem(file, "ends", f"no variant before {end} changes {path}")
        elif end in changed:
            yield Problem(file, "ends", f"{end}.patch changes {path}, which ends there")


def _check_order(patches: Sequence[Patch], *, own: bool) -> Iterable[Problem]:
    """Check that what a patch amends or needs comes before it.

    A patch of another queue may name one of ours, which is known only in the stack of queues.
    """
    listed = {patch.id for patch in patches}
    earlier: set[str] = set()
    for patch in patches:
        for field, names in (("amends", patch.amends), ("needs", patch.needs)):
            for other in names:
                if other not in earlier and (own or other in listed):
                    message = f"{other!r} is no patch that comes before it"
                    yield Problem(f"patches/{patch.id}/patch.toml", field, message)
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
