"""The maintainer's commands, ``python -m build_hooks COMMAND``.

Exit status: 0 if all is well; 1 if something is wrong with the queue, a base or a lock; 2 for a
command that makes no sense.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from build_hooks import build as building
from build_hooks.assembly.assemble import assemble
from build_hooks.bases import cache, choice
from build_hooks.bases.index import published
from build_hooks.bases.wheel import from_wheel
from build_hooks.diffs.reader import parse
from build_hooks.errors import BaseError, BuildError, LockError
from build_hooks.files import sha256
from build_hooks.outputs.record import verify
from build_hooks.outputs.record import write as write_lock
from build_hooks.project import Project
from build_hooks.queues import lock
from build_hooks.queues.stack import stack
from build_hooks.releases import final, spell
from build_hooks.review import worklist
from build_hooks.shared import outcomes, streams, tables
from build_hooks.upkeep import lint, pages, reviews, status
from build_hooks.upkeep.port import port
from build_hooks.upkeep.refresh import refresh, write_variant
from build_hooks.upkeep.trees import PatchTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, Queue
    from build_hooks.queues.stack import Stack


def main(arguments: Sequence[str] | None = None, project: Project | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words of the command; those of the process if None.
        project: The project to run it on; the one that this code is part of if None.

    Returns:
        The exit status.
    """
    return streams.run(lambda: _run(arguments, project), "error")


def _run(arguments: Sequence[str] | None, project: Project | None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        parser.exit(2)
    options.project = Project.here() if project is None else project
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m build_hooks", description=__doc__)
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        sub.set_defaults(command=command)
        sub.add_argument(
            "--wheels",
            type=Path,
            metavar="DIR",
            help="take the wheels of releases from here, and keep fetched ones here",
        )
        sub.add_argument(
            "--queue",
            type=Path,
            action="append",
            default=[],
            metavar="DIR",
            help="a queue on top of the project's own, as NRL_VLLM_QUEUE; may be given more than "
            "once, and what is changed is the last",
        )
        sub.add_argument(
            "--patches",
            default="",
            metavar="IDS",
            help="only these patches, or all but -these, separated by commas",
        )
        return sub

    build = add("build", _build)
    build.add_argument(
        "bases",
        nargs="*",
        metavar="BASE",
        help="as NRL_VLLM_BASE (default): a release, a wheel, a directory, 'installed'",
    )
    build.add_argument("--all", action="store_true", help="build every supported release")
    build.add_argument(
        "--out", type=Path, default=Path("dist"), metavar="DIR", help="default: dist"
    )

    locks = add("lock", _lock)
    locks.add_argument("releases", nargs="*", metavar="RELEASE", help="default: all supported")

    states = add("status", _status)
    states.add_argument(
        "--against", action="append", default=[], metavar="BASE", help="work it out for this base"
    )
    states.add_argument(
        "--newest",
        action="store_true",
        help="work it out for the newest release on the package index; exit 1 if that is not "
        "a supported one, whatever applies",
    )
    form = states.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="one object a patch and release, and what to look at"
    )
    form.add_argument("--markdown", action="store_true", help="the README's table")

    porting = add("port", _port)
    porting.add_argument("old", metavar="FROM", help="a release that the queue applies to")
    porting.add_argument("new", metavar="TO", help="the release to carry it to")

    bumping = add("bump", _bump)
    bumping.add_argument(
        "target",
        metavar="BASE",
        help="the release to end at, or a wheel or directory of a newer one",
    )

    fresh = add("refresh", _refresh)
    fresh.add_argument("ids", nargs="*", metavar="ID", help="default: every patch")
    fresh.add_argument("--release", metavar="RELEASE", help="only this variant")
    fresh.add_argument("--tree", type=Path, metavar="DIR", help="take the changed files from here")

    whole = add("show", _show)
    whole.add_argument("id", metavar="ID")
    whole.add_argument("release", metavar="RELEASE")

    importing = add("import", _import)
    importing.add_argument("sources", nargs="+", metavar="SOURCE", help=_SOURCES)
    importing.add_argument(
        "--release", required=True, metavar="RELEASE", help="the release that the patches are for"
    )
    importing.add_argument("--id", metavar="ID", help="the name of a single patch")
    importing.add_argument(
        "--strip",
        type=int,
        choices=range(100),
        metavar="N",
        help="take N components off each path, as patch -pN; default: found out",
    )
    importing.add_argument(
        "--prefix", metavar="P", help="put P, such as vllm, before each path; default: found out"
    )
    importing.add_argument(
        "--fuzz",
        action="store_true",
        help="let context differ, as patch -F3; what was placed so is marked for review",
    )
    importing.add_argument(
        "--drop-outside", action="store_true", help="leave out files outside of vllm/"
    )
    importing.add_argument(
        "--amends",
        action="append",
        default=[],
        metavar="ID",
        help="let the patches undo lines of this one, which comes before them",
    )

    add("lint", _lint)
    add("docs", _docs)
    return parser


_SOURCES = (
    "a patch file, a mailbox, an edited tree (a directory with vllm/), or commits of a local git "
    "repository: REPO:COMMIT, REPO:A..B"
)


def _stack(options: argparse.Namespace, *, tolerant: bool = True) -> Stack:
    """Read the queues that a command is about; patches that break the format are named."""
    others = [directory.resolve() for directory in options.queue]
    queues = stack(options.project.queue, others, options.patches, tolerant=tolerant)
    for id_, problems in queues.faults.items():
        print(f"left out: {id_} ({problems[0]}); see lint", file=sys.stderr)
    return queues


def _open(place: choice.Place, queues: Stack, wheels: Path | None) -> Base:
    """Open a base that has been named, of a release its whole wheel; hold it against its lock."""
    if isinstance(place, Version):
        base: Base = from_wheel(_wheel(place, queues, wheels))
    else:
        base = choice.open_place(place, queues)
    building.hold(base, queues.own)
    return base


def _wheel(release: Version, queues: Stack, wheels: Path | None) -> Path:
    known = lock.load(queues.own.directory, release)
    return cache.fetch_wheel(release, known.wheels if known else {}, wheels)


def _release(text: str) -> Version:
    release = spell(text)
    if release is None:
        raise BaseError(f"{text!r} is no release such as 0.29.0")
    return release


def _supported(text: str, queue: Queue) -> Version:
    release = _release(text)
    if release not in queue.releases:
        raise BuildError(f"{release} is not in series.toml; add it to `releases` first")
    return release


def _patch(queues: Stack, name: str) -> Patch:
    by_id = {patch.id: patch for patch in queues.patches}
    if name not in by_id:
        raise BuildError(f"no such patch: {name}; there are {', '.join(by_id)}")
    return by_id[name]


def _own_patches(queues: Stack) -> list[Patch]:
    """Return the patches of the queue that a command works on."""
    return [patch for patch in queues.patches if patch.queue == queues.top.name]


def _build(options: argparse.Namespace) -> int:
    """Build overlay wheels, and tell what each patch came to."""
    from hatchling.builders.wheel import WheelBuilder

    project: Project = options.project
    if options.queue:
        os.environ[building.QUEUE_VARIABLE] = os.pathsep.join(map(str, options.queue))
    if options.patches:
        os.environ[building.PATCHES_VARIABLE] = options.patches
    settings = building.Settings.from_environment()
    queues = building.open_stack(project, settings)
    bases = list(options.bases)
    if options.all:
        bases += [str(release) for release in queues.releases]
    # All of them before the first is fetched: the last may be misspelt, or too old.
    places = [choice.named(base) for base in bases]
    for place in places:
        if isinstance(place, Version):
            building.refuse_older(place, queues)
    places = places or [building.place(project, queues, settings)]
    for place in places:
        if options.wheels and isinstance(place, Version):
            place = _wheel(place, queues, options.wheels)  # noqa: PLW2901
        # The hook runs in this process, and reads its settings as in any front end.
        os.environ[choice.BASE_VARIABLE] = str(place)
        started = time.perf_counter()
        out = options.out.resolve()
        wheel = next(iter(WheelBuilder(str(project.root)).build(directory=str(out))))
        # The wheels' paths are all that goes to standard output: for scripts.
        print(wheel, flush=True)
        print(f"built in {time.perf_counter() - started:.1f} s\n", file=sys.stderr)
    return 0


def _lock(options: argparse.Namespace) -> int:
    """Record what the builds of supported releases read and make, for the last queue."""
    project: Project = options.project
    queues = _stack(options, tolerant=False)
    if options.patches:
        raise BuildError("a lock is that of a whole queue; leave --patches out")
    top = queues.top
    releases = [_supported(text, top) for text in options.releases] or list(top.releases)
    for release in releases:
        known = {**_locked_wheels(queues.own, release), **_locked_wheels(top, release)}
        path = cache.fetch_wheel(release, known, options.wheels)
        wheels = {**_locked_wheels(top, release), path.name: sha256(path.read_bytes())}
        overlay = assemble(queues, from_wheel(path))
        for queue in queues.queues[:-1]:
            below = lock.load(queue.directory, release)
            if below is not None:
                verify(below, overlay, queue)
        print(f"{release}: {project.shown(write_lock(top.directory, overlay, wheels))}")
    return 0


def _locked_wheels(queue: Queue, release: Version) -> Mapping[str, str]:
    """Return the hashes of wheels that are kept when a release is locked anew."""
    try:
        known = lock.load(queue.directory, release)
    except LockError:
        # A lock that cannot be read says to run this command.
        return {}
    return known.wheels if known else {}


def _status(options: argparse.Namespace) -> int:
    """Print the patch x release table; exit 0 only if every build would do."""
    queues = _stack(options)
    places = [choice.named(name) for name in options.against]
    ahead: list[Version] = []
    newest = max(queues.releases)
    if options.newest:
        known = published.releases()
        ahead = [release for release in known if release > newest]
        places.append(known[0])
    bases = [_open(place, queues, options.wheels) for place in places]
    cells = status.against(queues, bases) if bases else status.from_locks(queues.top)
    items = [item for base in bases for item in _review(options, queues, base)]
    if options.json:
        made = {"cells": status.as_json(cells), "review": worklist.as_json(items)}
        print(json.dumps(made, indent=2))
    else:
        print(status.as_markdown(cells) if options.markdown else status.as_text(cells), end="")
        if bases:
            print(f"\n{worklist.as_text(items)}")
    if ahead:
        port_it = f"python -m build_hooks port {newest} {ahead[0]}"
        newer = ", ".join(map(str, ahead))
        print(f"newer than every supported release: {newer}; run: {port_it}", file=sys.stderr)
    return 0 if status.good(cells) and not ahead else 1


def _review(options: argparse.Namespace, queues: Stack, base: Base) -> list[worklist.Item]:
    """List what has changed since the newest supported release that is not newer than a base."""
    older = [release for release in queues.releases if release <= base.version]
    if not older or base.version == older[-1]:
        return []
    before = _open(older[-1], queues, options.wheels)
    return worklist.worklist(queues, before, base, options.project.root)


def _port(options: argparse.Namespace) -> int:
    """Merge each patch onto another release; exit 1 if any is left with conflicts."""
    project: Project = options.project
    queues = _stack(options)
    places = [choice.named(name) for name in (options.old, options.new)]
    old, new = (_open(place, queues, options.wheels) for place in places)
    settled = _carry(project, queues, old, new)
    release = final(new.version)
    if release not in queues.top.releases:
        series = project.shown(queues.top.directory / "series.toml")
        hint = f"Add {release} to `releases` in {series} before you refresh or lock."
        print(hint, file=sys.stderr)
    return 0 if settled else 1


def _carry(project: Project, queues: Stack, old: Base, new: Base) -> bool:
    """Port the queues, and tell what became of each patch; return whether nothing is left to do."""
    trees = project.trees(str(new.version))
    if Path.cwd() == project.root:
        # Shorter in the commands that are printed.
        trees = trees.relative_to(project.root)
    carried = port(queues, old, new, trees)
    rows = [tables.Row((c.patch, c.outcome), [c.remark] if c.remark else []) for c in carried]
    print(tables.render(("patch", f"on {new.version}"), rows))
    unsettled = (outcomes.CONFLICT, outcomes.UPSTREAM, outcomes.DECISION, outcomes.NO_SOURCE)
    return not any(c.outcome in unsettled for c in carried)


def _bump(options: argparse.Namespace) -> int:
    """Take newer releases in, one after the other; stop where a person is needed, and go on."""
    try:
        from build_hooks.upkeep.bump import steps, take_in
    except ModuleNotFoundError as error:
        raise BuildError(f"bump needs {error.name}: use ci/queue, which brings it") from error
    project: Project = options.project
    queues = _stack(options, tolerant=False)
    place = choice.named(options.target)
    opened = None if isinstance(place, Version) else _open(place, queues, options.wheels)
    target = place if isinstance(place, Version) else final(opened.version) if opened else None
    if target is None:
        raise BuildError(f"{options.target} names no release to end at")
    before, walk = steps(queues.top, published.releases(), target)
    for release in walk:
        print(f"\nvLLM {release}, after {before}\n")
        matrix = project.matrix if queues.top is queues.own else queues.top.directory / "no-matrix"
        for line in take_in(queues.top, release, matrix):
            print(line)
        queues = _stack(options, tolerant=False)
        old = _open(before, queues, options.wheels)
        new = opened if opened and release == target else _open(release, queues, options.wheels)
        settled = _carry(project, queues, old, new)
        queues = _stack(options, tolerant=False)
        print(f"\n{worklist.as_text(worklist.worklist(queues, old, new, project.root))}\n")
        if not settled:
            print(
                "Do what the table of patches says, look at the list, then run this again: "
                f"python -m build_hooks bump {options.target}"
            )
            return 1
        if opened and release == target:
            print(f"{options.target} is no release of the index yet: lock it when it is")
            return 0
        options.releases = [str(release)]
        _lock(options)
        queues = _stack(options, tolerant=False)
        before = release
    print("\nNow, for each of them:")
    for release in walk:
        print(f"  ci/matrix {release}")
    print("and for all: python -m build_hooks docs; ci/test")
    return 0


def _refresh(options: argparse.Namespace) -> int:
    """Write diffs afresh: exact lines, least context, nothing that an older variant says."""
    queues = _stack(options)
    if options.tree and not (options.release and len(options.ids) == 1):
        raise BuildError("--tree goes with one ID and --release")
    chosen = [_patch(queues, name).id for name in options.ids]
    chosen = chosen or [patch.id for patch in _own_patches(queues)]
    only = _supported(options.release, queues.top) if options.release else None
    for name in chosen:
        patch = _patch(queues, name)
        for release in [only] if only else [variant.release for variant in patch.variants]:
            tree = PatchTree(options.tree) if options.tree else None
            queues = _refresh_one(options, queues, name, release, tree)
            if options.ids and reviews.confirm(patch, release):
                print(f"{name}: what was inferred for {release} is confirmed")
    if options.tree and only:
        _refresh_later(options, queues, chosen[0], only)
    return 0


def _refresh_one(
    options: argparse.Namespace,
    queues: Stack,
    name: str,
    release: Version,
    tree: PatchTree | None,
) -> Stack:
    """Write one variant; return the queues with it, since newer ones leave out what it says."""
    project: Project = options.project
    patch = _patch(queues, name)
    base = _open(release, queues, options.wheels)
    text = refresh(queues, patch, base, tree, project.trees(str(release)))
    file, done = write_variant(patch, release, text)
    print(f"{project.shown(file)}: {done}")
    return queues.with_patch(patch.with_variant(release, parse(text.encode()) if text else ()))


def _refresh_later(options: argparse.Namespace, queues: Stack, name: str, release: Version) -> None:
    """Write the later patches of a port again, on top of the one that has just been resolved."""
    after = queues.patches.index(_patch(queues, name)) + 1
    for patch in queues.patches[after:]:
        tree = PatchTree(options.project.trees(str(release)) / patch.id)
        if tree.remembers and patch.variant_file(release).exists():
            queues = _refresh_one(options, queues, patch.id, release, tree)


def _show(options: argparse.Namespace) -> int:
    """Print the whole diff of one patch for one release, put together from its variants."""
    queues = _stack(options)
    patch, release = _patch(queues, options.id), _release(options.release)
    diff = patch.diff(release) if patch.needed(release) else None
    if diff is None:
        raise BuildError(f"{patch.id} is not needed for {release}: {patch.reason(release)}")
    for path, variant in diff.variants.items():
        print(f"{path}: from {variant}.patch", file=sys.stderr)
    sys.stdout.write(diff.text.decode())
    return 0


def _import(options: argparse.Namespace) -> int:
    """Bring patches of others into a queue, in whatever form they were published."""
    try:
        from build_hooks.intake import sources, store
    except ModuleNotFoundError as error:
        # What it writes with is no requirement of a build.
        raise BuildError(f"import needs {error.name}: use ci/queue, which brings it") from error
    from build_hooks.intake.bring import below, bring
    from build_hooks.intake.door import Options

    if not options.queue:
        raise BuildError("name the queue that the patches go to, which may be new: --queue DIR")
    release = _release(options.release)
    target = store.Target(options.queue[-1], release)
    own = target.directory.resolve() == options.project.queue.resolve()
    if own or not target.exists:
        del options.queue[-1]
    queues = _stack(options)
    if target.exists:
        _supported(str(release), queues.top)
    base = _open(release, queues, options.wheels)
    patches = [patch for source in options.sources for patch in sources.read(source, base)]
    names = store.names(patches, options.id, queues.ids)
    wanted = Options(
        options.strip,
        options.prefix,
        fuzz=options.fuzz,
        drop_outside=options.drop_outside,
        amends=tuple(options.amends),
    )
    brought = bring(list(zip(names, patches, strict=True)), below(queues, base), wanted)
    for patch, file in zip(brought, target.write(brought), strict=True):
        print(f"{options.project.shown(file)}: {patch.patch.title}")
        for note in (*patch.notes, *(f"review: {entry}" for entry in patch.review)):
            print(f"    {note}")
    return 0


def _lint(options: argparse.Namespace) -> int:
    """Check the last queue's format, and that each lock and generated page is there and fresh."""
    queues = _stack(options, tolerant=False)
    faults = lint.faults(queues.top, options.project)
    for fault in faults:
        print(fault, file=sys.stderr)
    patches = _own_patches(queues)
    variants = sum(len(patch.variants) for patch in patches)
    print(f"{len(patches)} patches, {variants} diffs, {len(queues.top.releases)} releases")
    return 1 if faults else 0


def _docs(options: argparse.Namespace) -> int:
    """Write the pages that are made from the project's own queue, and the README's table."""
    project: Project = options.project
    made = pages.pages(stack(project.queue).own, project)
    for path in pages.stale(made, project):
        if path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made[path])
        else:
            path.unlink()
        print(f"{project.shown(path)}: {'written' if path in made else 'removed'}")
    return 0
