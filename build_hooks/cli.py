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

from packaging.version import InvalidVersion, Version

from build_hooks import base as bases
from build_hooks import docs, fetch, lock, plan, port, published, status, table
from build_hooks.assemble import assemble, sha256
from build_hooks.errors import BaseError, BuildError, LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from build_hooks.queue import Patch, Queue


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
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

    add("lint", _lint)
    add("docs", _docs)
    return parser


def _open(setting: str, wheels: Path | None) -> bases.Base:
    """Open a base that is named as in ``NRL_VLLM_BASE``; of a release, the whole wheel."""
    found = bases.named(setting)
    if found is None or isinstance(found, Version):
        return bases.from_wheel(_wheel(_release(setting), wheels))
    base = found()
    if base is None:
        raise BaseError("no vLLM is installed here")
    return base


def _wheel(release: Version, wheels: Path | None) -> Path:
    known = lock.load(plan.OVERLAY, release)
    return fetch.wheel(release, known.wheels if known else {}, wheels)


def _release(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise BaseError(f"{text!r} is neither on disk nor a release such as 0.29.0") from None


def _build(options: argparse.Namespace) -> int:
    """Build overlay wheels, and tell what each patch came to."""
    from hatchling.builders.wheel import WheelBuilder

    named = list(options.bases)
    if options.all:
        named += [str(release) for release in plan.load_queue().releases]
    for name in named or [os.environ.get(plan.BASE_VARIABLE, "")]:
        release = bases.named(name)
        if options.wheels and isinstance(release, Version):
            name = str(_wheel(release, options.wheels))  # noqa: PLW2901
        os.environ[plan.BASE_VARIABLE] = name
        started = time.perf_counter()
        out = options.out.resolve()
        wheel = next(iter(WheelBuilder(str(plan.ROOT)).build(directory=str(out))))
        # The wheels' paths are all that goes to standard output: for scripts.
        print(wheel, flush=True)
        print(f"built in {time.perf_counter() - started:.1f} s\n", file=sys.stderr)
    return 0


def _lock(options: argparse.Namespace) -> int:
    """Record what the supported releases' builds read and make."""
    queue = plan.load_queue()
    releases = [_release(text) for text in options.releases] or queue.releases
    for release in releases:
        if release not in queue.releases:
            raise BuildError(f"{release} is not in series.toml; add it to `releases` first")
    for release in releases:
        path = fetch.wheel(release, {}, options.wheels)
        wheels = {**_locked_wheels(release), path.name: sha256(path.read_bytes())}
        file = lock.write(plan.OVERLAY, assemble(queue, bases.from_wheel(path)), wheels)
        print(f"{release}: {file.relative_to(plan.ROOT)}")
    return 0


def _locked_wheels(release: Version) -> Mapping[str, str]:
    """Return the hashes of wheels that are kept when a release is locked anew."""
    try:
        known = lock.load(plan.OVERLAY, release)
    except LockError:
        # A lock that cannot be read says to run this command.
        return {}
    return known.wheels if known else {}


def _status(options: argparse.Namespace) -> int:
    """Print the patch x release table; exit 0 only if every build would do."""
    queue = plan.load_queue()
    named = list(options.against)
    ahead: list[Version] = []
    if options.newest:
        known = published.releases()
        ahead = [release for release in known if release > max(queue.releases)]
        named.append(str(known[0]))
    if named:
        cells = status.against(queue, [_open(name, options.wheels) for name in named])
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
    queue = plan.load_queue()
    old, new = _open(options.old, options.wheels), _open(options.new, options.wheels)
    scratch = plan.ROOT / "build" / "port" / str(new.version)
    carried = port.port(queue, old, new, plan.OVERLAY / "patches", scratch)
    rows = [(c.patch, c.outcome, c.remark) for c in carried]
    print(table.render(("patch", f"on {new.version}", "remark"), rows))
    release = Version(new.version.base_version)
    if release not in queue.releases:
        hint = f"Add {release} to `releases` in overlay/series.toml before you refresh or lock."
        print(hint, file=sys.stderr)
    return 1 if any(c.outcome in (port.MERGED, port.UPSTREAM) for c in carried) else 0


def _refresh(options: argparse.Namespace) -> int:
    """Write diffs afresh: exact lines, least context."""
    queue = plan.load_queue()
    by_id = {patch.id: patch for patch in queue.patches}
    unknown = [name for name in options.ids if name not in by_id]
    if unknown:
        raise BuildError(f"no such patch: {', '.join(unknown)}; the queue has {', '.join(by_id)}")
    if options.tree and not (options.release and len(options.ids) == 1):
        raise BuildError("--tree goes with one ID and --release")
    for name in options.ids or by_id:
        for release in _releases(by_id[name], options.release):
            text = port.refresh(queue, by_id[name], _open(release, options.wheels), options.tree)
            file = plan.OVERLAY / "patches" / name / f"{release}.patch"
            changed = not file.exists() or file.read_text(encoding="utf-8") != text
            file.write_text(text, encoding="utf-8")
            print(f"{file.relative_to(plan.ROOT)}: {'written' if changed else 'unchanged'}")
    return 0


def _releases(patch: Patch, only: str | None) -> list[str]:
    return [only] if only else [str(variant.release) for variant in patch.variants]


def _lint(_: argparse.Namespace) -> int:
    """Check the queue's format, and that each lock and generated page is there and fresh."""
    queue: Queue = plan.load_queue()
    faults = [
        f"{cell.patch} on {cell.base}: {cell.remark}"
        for cell in status.from_locks(queue)
        if cell.outcome in (status.STALE, status.UNLOCKED)
    ]
    faults += [
        f"{path.relative_to(plan.ROOT)} is not fresh: python -m build_hooks docs"
        for path in docs.stale(docs.pages(queue, plan.ROOT), plan.ROOT)
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    variants = sum(len(patch.variants) for patch in queue.patches)
    print(f"{len(queue.patches)} patches, {variants} diffs, {len(queue.releases)} releases")
    return 1 if faults else 0


def _docs(_: argparse.Namespace) -> int:
    """Write the pages that are made from the queue, and the README's table."""
    made = docs.pages(plan.load_queue(), plan.ROOT)
    for path in docs.stale(made, plan.ROOT):
        if path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{path.relative_to(plan.ROOT)}: {'written' if path in made else 'removed'}")
    return 0
