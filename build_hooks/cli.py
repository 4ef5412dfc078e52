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
from build_hooks.errors import BaseError, BuildError, LockError
from build_hooks.files import sha256
from build_hooks.outputs.lock import write as write_lock
from build_hooks.project import Project
from build_hooks.queues import lock
from build_hooks.queues.reader import load
from build_hooks.releases import final, spell
from build_hooks.shared import outcomes, tables
from build_hooks.upkeep import lint, pages, status
from build_hooks.upkeep.port import port
from build_hooks.upkeep.refresh import refresh, write_variant
from build_hooks.upkeep.trees import PatchTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from build_hooks.bases.base import Base
    from build_hooks.queues.model import Patch, Queue


def main(arguments: Sequence[str] | None = None, project: Project | None = None) -> int:
    """Run one command on a project, by default the one that this code is part of."""
    options = _parser().parse_args(arguments)
    options.project = Project.here() if project is None else project
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m build_hooks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        sub.set_defaults(command=command)
        sub.add_argument(
            "--wheels",
            type=Path,
            metavar="DIR",
            help="take the wheels of releases from here, and keep fetched ones here",
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
    form.add_argument("--json", action="store_true", help="one object a patch and release")
    form.add_argument("--markdown", action="store_true", help="the README's table")

    porting = add("port", _port)
    porting.add_argument("old", metavar="FROM", help="a release that the queue applies to")
    porting.add_argument("new", metavar="TO", help="the release to carry it to")

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
        "--queue",
        type=Path,
        required=True,
        metavar="DIR",
        help="the queue that the patches go to, at its end; it is made if there is none",
    )
    importing.add_argument(
        "--release", required=True, metavar="RELEASE", help="the release that they are for"
    )
    importing.add_argument("--id", metavar="ID", help="the name of a single patch")
    importing.add_argument(
        "--strip",
        type=int,
        choices=range(100),
        metavar="N",
        help="take N components off each path, as patch -pN",
    )
    importing.add_argument("--prefix", metavar="P", help="put P before each path: vllm")
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
        help="let the patches undo lines of this one, which the queue has",
    )

    add("lint", _lint)
    add("docs", _docs)
    return parser


_SOURCES = (
    "a patch file, a mailbox, an edited tree (a directory with vllm/), or commits of a local git "
    "repository: REPO:COMMIT, REPO:A..B"
)


def _open(setting: str, queue: Queue, wheels: Path | None) -> Base:
    """Open a base that is named as in ``NRL_VLLM_BASE``; of a release, the whole wheel."""
    place = choice.named(setting)
    if isinstance(place, Version):
        return from_wheel(_wheel(place, queue, wheels))
    return choice.open_place(place, queue)


def _wheel(release: Version, queue: Queue, wheels: Path | None) -> Path:
    known = lock.load(queue.directory, release)
    return cache.fetch_wheel(release, known.wheels if known else {}, wheels)


def _release(text: str) -> Version:
    release = spell(text)
    if release is None:
        raise BaseError(f"{text!r} is no release such as 0.29.0")
    return release


def _patch(queue: Queue, name: str) -> Patch:
    by_id = {patch.id: patch for patch in queue.patches}
    if name not in by_id:
        raise BuildError(f"no such patch: {name}; the queue has {', '.join(by_id)}")
    return by_id[name]


def _build(options: argparse.Namespace) -> int:
    """Build overlay wheels, and tell what each patch came to."""
    from hatchling.builders.wheel import WheelBuilder

    project: Project = options.project
    queue = load(project.queue)
    bases = list(options.bases)
    if options.all:
        bases += [str(release) for release in queue.releases]
    # All of them before the first is fetched: the last may be misspelt.
    places = [choice.named(base) for base in bases]
    if not places:
        setting = os.environ.get(building.BASE_VARIABLE, "")
        places = [choice.named(setting) if setting else ""]
    for place in places:
        if options.wheels and isinstance(place, Version):
            place = _wheel(place, queue, options.wheels)  # noqa: PLW2901
        # The hook runs in this process, and reads its settings as in any front end.
        os.environ[building.BASE_VARIABLE] = str(place)
        started = time.perf_counter()
        out = options.out.resolve()
        wheel = next(iter(WheelBuilder(str(project.root)).build(directory=str(out))))
        # The wheels' paths are all that goes to standard output: for scripts.
        print(wheel, flush=True)
        print(f"built in {time.perf_counter() - started:.1f} s\n", file=sys.stderr)
    return 0


def _lock(options: argparse.Namespace) -> int:
    """Record what the supported releases' builds read and make."""
    project: Project = options.project
    queue = load(project.queue)
    releases = [_release(text) for text in options.releases] or queue.releases
    for release in releases:
        if release not in queue.releases:
            raise BuildError(f"{release} is not in series.toml; add it to `releases` first")
    for release in releases:
        path = cache.fetch_wheel(release, {}, options.wheels)
        wheels = {**_locked_wheels(queue, release), path.name: sha256(path.read_bytes())}
        file = write_lock(queue.directory, assemble(queue, from_wheel(path)), wheels)
        print(f"{release}: {project.shown(file)}")
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
    queue = load(options.project.queue)
    named = list(options.against)
    ahead: list[Version] = []
    if options.newest:
        known = published.releases()
        ahead = [release for release in known if release > max(queue.releases)]
        named.append(str(known[0]))
    if named:
        cells = status.against(queue, [_open(name, queue, options.wheels) for name in named])
    else:
        cells = status.from_locks(queue)
    if options.json:
        print(json.dumps(status.as_json(cells), indent=2))
    else:
        print(status.as_markdown(cells) if options.markdown else status.as_text(cells), end="")
    if ahead:
        port_it = f"python -m build_hooks port {max(queue.releases)} {ahead[0]}"
        newer = ", ".join(map(str, ahead))
        print(f"newer than every supported release: {newer}; run: {port_it}", file=sys.stderr)
    return 0 if status.good(cells) and not ahead else 1


def _port(options: argparse.Namespace) -> int:
    """Merge each patch onto another release; exit 1 if any is left with conflicts."""
    project: Project = options.project
    queue = load(project.queue)
    old = _open(options.old, queue, options.wheels)
    new = _open(options.new, queue, options.wheels)
    carried = port(queue, old, new, project.trees(str(new.version)))
    rows = [tables.Row((c.patch, c.outcome), [c.remark] if c.remark else []) for c in carried]
    print(tables.render(("patch", f"on {new.version}"), rows))
    release = final(new.version)
    if release not in queue.releases:
        hint = f"Add {release} to `releases` in overlay/series.toml before you refresh or lock."
        print(hint, file=sys.stderr)
    unsettled = (outcomes.CONFLICT, outcomes.UPSTREAM, outcomes.DECISION, outcomes.NO_SOURCE)
    return 1 if any(c.outcome in unsettled for c in carried) else 0


def _refresh(options: argparse.Namespace) -> int:
    """Write diffs afresh: exact lines, least context, nothing that an older variant says."""
    project: Project = options.project
    queue = load(project.queue)
    if options.tree and not (options.release and len(options.ids) == 1):
        raise BuildError("--tree goes with one ID and --release")
    chosen = [_patch(queue, name).id for name in options.ids] or [p.id for p in queue.patches]
    only = _release(options.release) if options.release else None
    for name in chosen:
        for release in [only] if only else [v.release for v in _patch(queue, name).variants]:
            tree = PatchTree(options.tree) if options.tree else None
            _refresh_one(options, name, release, tree)
    if options.tree and only:
        _refresh_later(options, chosen[0], only)
    return 0


def _refresh_one(
    options: argparse.Namespace, name: str, release: Version, tree: PatchTree | None
) -> None:
    project: Project = options.project
    # Read anew each time: a newer variant leaves out what an older one says now.
    queue = load(project.queue)
    patch = _patch(queue, name)
    base = _open(str(release), queue, options.wheels)
    text = refresh(queue, patch, base, tree, project.trees(str(release)))
    file, done = write_variant(queue, patch, release, text)
    print(f"{project.shown(file)}: {done}")


def _refresh_later(options: argparse.Namespace, name: str, release: Version) -> None:
    """Write the later patches of a port again, on top of the one that has just been resolved."""
    queue = load(options.project.queue)
    after = queue.patches.index(_patch(queue, name)) + 1
    for patch in queue.patches[after:]:
        tree = PatchTree(options.project.trees(str(release)) / patch.id)
        if tree.remembers and queue.variant_file(patch.id, release).exists():
            _refresh_one(options, patch.id, release, tree)


def _show(options: argparse.Namespace) -> int:
    """Print the whole diff of one patch for one release, put together from its variants."""
    queue = load(options.project.queue)
    patch, release = _patch(queue, options.id), _release(options.release)
    diff = patch.diff(release) if patch.needed(release) else None
    if diff is None:
        raise BuildError(f"{patch.id} is not needed for {release}: {patch.reason(release)}")
    for path, variant in diff.variants.items():
        print(f"{path}: from {variant}.patch", file=sys.stderr)
    sys.stdout.write(diff.text.decode())
    return 0


def _import(options: argparse.Namespace) -> int:
    """Bring patches of others into a queue, in whatever form they were published."""
    # tomlkit, which it writes with, is no requirement of a build.
    from build_hooks.intake import sources, store
    from build_hooks.intake.bring import bring, stack
    from build_hooks.intake.door import Options

    release = _release(options.release)
    target = store.Target(options.queue, release)
    queue = load(options.queue) if target.exists else None
    if queue is not None and release not in queue.releases:
        raise BuildError(f"{release} is not in {target.series}; add it to `releases` first")
    known = lock.load(options.project.queue, release)
    wheel = cache.fetch_wheel(release, known.wheels if known else {}, options.wheels)
    base = from_wheel(wheel)
    tree = stack([queue] if queue else [], base)
    patches = [patch for source in options.sources for patch in sources.read(source, base)]
    names = store.names(patches, options.id, [p.id for p in queue.patches] if queue else [])
    wanted = Options(
        options.strip,
        options.prefix,
        fuzz=options.fuzz,
        drop_outside=options.drop_outside,
        amends=tuple(options.amends),
    )
    brought = bring(list(zip(names, patches, strict=True)), tree, wanted)
    for patch, file in zip(brought, target.write(brought), strict=True):
        print(f"{options.project.shown(file)}: {patch.patch.title}")
        for note in (*patch.notes, *(f"review: {entry}" for entry in patch.review)):
            print(f"    {note}")
    return 0


def _lint(options: argparse.Namespace) -> int:
    """Check the queue's format, and that each lock and generated page is there and fresh."""
    queue = load(options.project.queue)
    faults = lint.faults(queue, options.project)
    for fault in faults:
        print(fault, file=sys.stderr)
    variants = sum(len(patch.variants) for patch in queue.patches)
    print(f"{len(queue.patches)} patches, {variants} diffs, {len(queue.releases)} releases")
    return 1 if faults else 0


def _docs(options: argparse.Namespace) -> int:
    """Write the pages that are made from the queue, and the README's table."""
    project: Project = options.project
    made = pages.pages(load(project.queue), project)
    for path in pages.stale(made, project):
        if path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{project.shown(path)}: {'written' if path in made else 'removed'}")
    return 0
