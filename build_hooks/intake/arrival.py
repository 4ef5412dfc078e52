"""One patch on its way in: refused, or applied and written strictly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from build_hooks.assembly.tree import Change, brought_already
from build_hooks.diffs import paths
from build_hooks.diffs.applier import Misfit, MisfitError
from build_hooks.diffs.model import DiffError, FileDiff, Hunk, split
from build_hooks.diffs.reader import parse
from build_hooks.errors import Conflict
from build_hooks.intake import model
from build_hooks.intake.model import Kind
from build_hooks.intake.paths import Reading, path_of
from build_hooks.intake.placing import place
from build_hooks.intake.tidy import tidy
from build_hooks.releases import final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from build_hooks.diffs.owners import Clash
    from build_hooks.intake.door import Door
    from build_hooks.intake.model import ForeignPatch, Reason, Section
    from build_hooks.queues.model import Place

_REFUSED = {
    Kind.RENAME: model.RENAMES,
    Kind.BINARY: model.BINARY,
    Kind.LINK: model.LINKS,
    Kind.SUBMODULE: model.LINKS,
    Kind.MODE: model.MODE,
}
_THERE = "the patch adds this file, but it is there already"


@dataclass(frozen=True)
class Brought:
    """A patch that came in.

    Attributes:
        id: Its name in the queue.
        patch: What it was.
        text: Its variant, strict.
        amends: The earlier patches that it undoes lines of.
        review: Places that a person has to look at.
        notes: What was changed at the door.
        place: For modules that find files by their own place, where these are.
    """

    id: str
    patch: ForeignPatch
    text: str
    amends: tuple[str, ...]
    review: tuple[str, ...]
    notes: tuple[str, ...]
    place: Mapping[str, Place] = field(default_factory=dict)


@dataclass
class Arrival:
    """One patch on its way in."""

    door: Door
    id: str
    patch: ForeignPatch
    reading: Reading
    contents: dict[str, bytes] = field(default_factory=dict)
    review: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Files in which a hunk has no place; what follows in them is not tried.
    misfit: set[str] = field(default_factory=set)
    failed: bool = False

    def bring(self) -> Brought | None:
        """Apply the patch to the tree; None if it does not come in."""
        diff = self.patch.diff
        for fault in diff.faults:
            where = f"{self.patch.source}, line {fault.line} ({fault.message})"
            self._refuse(model.UNREADABLE, where)
        self.notes += self.patch.notes
        if not self.patch.fixed and self.reading != Reading():
            prefix = f" --prefix {self.reading.prefix}" if self.reading.prefix else ""
            self.notes.append(f"paths were read as with --strip {self.reading.strip}{prefix}")
        if diff.crlf:
            self.notes.append("line ends CR LF were made LF")
        seen: set[str] = set()
        left_out: list[str] = []
        for section in diff.sections:
            path = path_of(section, self.reading, self.door.exists)
            if self._outside(path):
                left_out.append(path)
                continue
            if path in seen:
                self.notes.append(f"{path}: its parts were put together")
            seen.add(path)
            if not self._refused(section, path) and not diff.faults and path not in self.misfit:
                self._apply(section, path)
        if left_out:
            self.notes.append(f"left out: {', '.join(dict.fromkeys(left_out))}")
        self.notes = list(dict.fromkeys(self.notes))
        if self.failed:
            self.door.lost |= seen
            return None
        return self._finish()

    def _refuse(self, reason: Reason, where: str) -> None:
        self.failed = True
        self.door.refused.append((reason, where))

    def _conflict(
        self, path: str, hunk: int, message: str, detail: str = "", other: str = ""
    ) -> None:
        self.failed = True
        release = str(final(self.door.tree.base.version))
        self.door.conflicts.append(Conflict(self.id, release, path, hunk, message, detail, other))

    def _outside(self, path: str) -> bool:
        return self.door.options.drop_outside and not path.startswith("vllm/")

    def _refused(self, section: Section, path: str) -> bool:
        """Refuse a section that no overlay can carry, whatever its hunks are."""
        if not path.startswith("vllm/"):
            self._refuse(model.OUTSIDE, path)
        elif section.kind is Kind.DELETE:
            self._refuse(model.DELETES if paths.is_module(path) else model.DELETES_DATA, path)
        elif section.kind in _REFUSED:
            renamed = section.kind is Kind.RENAME and section.old
            where = f"{self.reading.of(renamed)} to {path}" if renamed else path
            self._refuse(_REFUSED[section.kind], where)
        elif fault := next(paths.faults(path), ""):
            self._refuse(model.unfit(fault.removeprefix(f"{path!r} ")), path)
        elif paths.is_data(path) and path not in self.contents and self.door.exists(path):
            self._refuse(model.CHANGES_DATA, path)
        else:
            return False
        return True

    def _apply(self, section: Section, path: str) -> None:
        """Apply one section to the file as it is by now."""
        if path in self.door.lost:
            # The failure of the earlier patch is told; this one follows from it, or not.
            self.failed = True
            if self.id not in self.door.untried:
                self.door.untried.append(self.id)
            return
        content = self.contents.get(path, self.door.current(path))
        if section.kind is Kind.COPY and content is None:
            content = self._copied(section)
        elif section.kind is Kind.COPY:
            self._conflict(path, 0, _THERE, other=self.door.tree.last_writer(path))
            return
        elif section.adds and content in (None, b""):
            if section.mode.endswith("755"):
                self.notes.append(f"{path}: its mode {section.mode} is not kept")
            self.contents[path] = b"".join(line for hunk in section.hunks for line in hunk.new)
            return
        elif section.adds and (section.old is None or paths.is_data(path)):
            made = b"".join(line for hunk in section.hunks for line in hunk.new)
            there = "the base has this file already" if made == content else _THERE
            self._conflict(path, 0, there, other=self.door.tree.last_writer(path))
            return
        if content is None:
            self._conflict(path, 0, "the base has no such file")
            return
        if b"\r\n" in content:
            self._refuse(model.CRLF, path)
            return
        if section.mode:
            self.notes.append(f"{path}: its mode {section.mode} is not kept")
        self._place(section, path, content)

    def _copied(self, section: Section) -> bytes | None:
        """Return the file that a copy starts from; None if there is none."""
        source = self.reading.of(section.old or "") or ""
        if not self.door.exists(source):
            return None
        return self.contents.get(source, self.door.current(source))

    def _place(self, section: Section, path: str, content: bytes) -> None:
        tree = self.door.tree
        owners = tree.owners(path) if tree.current(path) == content else []
        try:
            placed = place(section.hunks, content, owners, fuzz=self.door.options.fuzz)
        except MisfitError as error:
            self._misfits(section, path, content, error.misfits)
            return
        self.contents[path] = placed.content
        self.review += [f"{path} hunk {number}: {doubt}" for number, doubt in placed.review]
        moved = [f"{lines:+d}" for lines in placed.moved if lines]
        if moved:
            self.notes.append(f"{path}: hunks moved by {', '.join(dict.fromkeys(moved))} lines")

    def _misfits(
        self, section: Section, path: str, content: bytes, misfits: Sequence[Misfit]
    ) -> None:
        self.misfit.add(path)
        tree = self.door.tree
        hunks = tuple(Hunk(max(h.start, 2), tuple(h.old), tuple(h.new)) for h in section.hunks)
        whole = FileDiff(path, added=False, hunks=hunks)
        if brought_already(whole, tree.stock(path)):
            self._conflict(path, 0, "the base has this change already")
            return
        for misfit in misfits:
            other = tree.displaced_by(whole, misfit.hunk) or ""
            blame = f"conflicts with {other}, which comes before it: " if other else ""
            self._conflict(path, misfit.hunk, blame + misfit.message, misfit.detail, other)
        try:
            place(section.hunks, content, fuzz=True)
        except MisfitError:
            return
        self.door.fuzz_helps = True

    def _finish(self) -> Brought | None:
        """Write the changes strictly, and take them over."""
        tree = self.door.tree
        made: dict[str, bytes] = {}
        for path, content in self.contents.items():
            made[path] = self._tidied(path, content)
        self._add_packages(made)
        changes = self._described(made)
        if self.failed:
            self.door.lost |= set(made)
            return None
        if not changes:
            self._refuse(model.NOTHING, self.patch.source)
            return None
        amends = self._undone(changes)
        text = "".join(change.file.text.decode() for change in changes)
        try:
            parse(text.encode())
        except DiffError as error:
            self._refuse(model.untellable(error.faults[0][1]), self.patch.source)
        if self.failed:
            self.door.lost |= set(made)
            return None
        release = final(tree.base.version)
        tree.write(self.id, {change.file.path: release for change in changes}, changes)
        self.door.raw |= self.contents
        self.door.new_ids.add(self.id)
        return Brought(self.id, self.patch, text, amends, tuple(self.review), tuple(self.notes))

    def _tidied(self, path: str, content: bytes) -> bytes:
        if not paths.is_module(path):
            return content
        known = set(split(self.door.tree.current(path) or b""))
        tidied, lines = tidy(content, known)
        if lines:
            numbers = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
            self.notes.append(f"{path}: white space taken off lines {numbers}")
        return tidied

    def _add_packages(self, made: dict[str, bytes]) -> None:
        """Add the empty ``__init__.py`` of each new package: the overlay has no other kind."""
        for path in list(made):
            directory = path.rpartition("/")[0]
            while paths.is_module(path) and directory and directory not in self.door.directories:
                init = f"{directory}/__init__.py"
                if init not in made and self.door.current(init) is None:
                    made[init] = b""
                    self.notes.append(f"{init}: added, empty; a new package needs it")
                directory = directory.rpartition("/")[0]

    def _described(self, made: Mapping[str, bytes]) -> list[Change]:
        changes = []
        for path, content in sorted(made.items()):
            before = self.door.tree.current(path)
            if content == before:
                continue
            try:
                changes.append(Change.of(path, before, content))
            except DiffError as error:
                self._refuse(model.untellable(error.faults[0][1]), path)
        return changes

    def _undone(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """Find the earlier patches that this one undoes lines of; only known ones may be."""
        tree, allowed = self.door.tree, self.door.options.amends
        amends: set[str] = set()
        for change in changes:
            for clash in tree.undone(self.id, (), change):
                if clash.owner in allowed or clash.owner in self.door.new_ids:
                    amends.add(clash.owner)
                else:
                    self._conflict(change.file.path, clash.hunk, _undoes(clash), other=clash.owner)
        mine = sorted(amends & self.door.new_ids)
        if mine:
            self.notes.append(f"it changes lines of {', '.join(mine)}, which it amends")
        return tuple(sorted(amends))


def _undoes(clash: Clash) -> str:
    does = "takes out" if clash.taken_out else "brings back"
    did = "put in" if clash.taken_out else "took out"
    text = clash.text.decode(errors="backslashreplace").strip()
    return (
        f"undoes {clash.owner}: it {does} line {clash.line}, which {clash.owner} {did}: {text!r}. "
        f"If that is meant, import it with --amends {clash.owner}."
    )
