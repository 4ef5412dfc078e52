"""The queues of one build, ours first, and the patches that are taken of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from build_hooks.errors import Problem, QueueError
from build_hooks.files import sha256
from build_hooks.queues import reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from packaging.version import Version

    from build_hooks.queues.model import Patch, Queue


@dataclass(frozen=True)
class Stack:
    """Queues on top of one another.

    Attributes:
        queues: The queues, the project's own first.
        patches: The patches that are taken, in their order.
        left_out: The ids of those that are not.
    """

    queues: tuple[Queue, ...]
    patches: tuple[Patch, ...]
    left_out: tuple[str, ...] = ()

    @property
    def own(self) -> Queue:
        """The project's own queue."""
        return self.queues[0]

    @property
    def faults(self) -> dict[str, tuple[Problem, ...]]:
        """What is wrong with single patches, by their ids; these are left out."""
        return {id_: found for queue in self.queues for id_, found in queue.faults.items() if id_}

    @property
    def top(self) -> Queue:
        """The last queue: the one that a maintainer's command works on."""
        return self.queues[-1]

    @property
    def ids(self) -> list[str]:
        """The ids of all patches of all queues, taken or not, right or wrong."""
        return [id_ for queue in self.queues for id_ in _ids(queue)]

    @property
    def releases(self) -> tuple[Version, ...]:
        """The releases that the project supports."""
        return self.own.releases

    @property
    def requires(self) -> list[str]:
        """What the chosen patches import, as requirements, each once."""
        used = {patch.queue for patch in self.patches}
        found = [r for queue in self.queues if queue.name in used for r in queue.requires]
        found += [r for patch in self.patches for r in patch.requires]
        return list(dict.fromkeys(found))

    @property
    def mark(self) -> list[str]:
        """What the local part of a version says of a stack that is not our queue, whole."""
        used = {patch.queue for patch in self.patches}
        others = [q for q in self.queues[1:] if q.name in used]
        words = [word for queue in others for word in (queue.name, str(queue.revision))]
        if self.left_out:
            chosen = "\n".join(patch.id for patch in self.patches)
            words += ["subset", sha256(chosen.encode())[:8]]
        return words

    def with_patch(self, patch: Patch) -> Stack:
        """Return the stack with another patch in place of the one of that id.

        Args:
            patch: The patch.
        """
        patches = (patch if known.id == patch.id else known for known in self.patches)
        return replace(self, patches=tuple(patches))

    def is_whole(self, queue: Queue) -> bool:
        """Tell whether every patch of a queue is taken.

        Args:
            queue: One of the queues.
        """
        taken = {patch.id for patch in self.patches if patch.queue == queue.name}
        return taken == {patch.id for patch in queue.patches} and not queue.faults


def stack(
    own: Path, others: Sequence[Path] = (), chosen: str = "", *, tolerant: bool = False
) -> Stack:
    """Read the queues of a build and choose among their patches.

    Args:
        own: The directory of the project's own queue.
        others: The directories of the queues on top of it, in their order.
        chosen: Ids, separated by commas: only these patches are taken. With a hyphen in front of
            each, these are left out. Empty takes all.
        tolerant: Whether patches that break the format are left out, rather than an error.

    Raises:
        QueueError: if a queue, or a patch that is taken, breaks the format, or a patch needs or
            amends one that does not come before it.
    """
    found = read_all(own, others)
    wanted = _chosen([id_ for queue in found for id_ in _ids(queue)], chosen)
    made = Stack(
        found,
        tuple(patch for queue in found for patch in queue.patches if patch.id in wanted),
        tuple(id_ for queue in found for id_ in _ids(queue) if id_ not in wanted),
    )
    problems = [
        problem
        for queue in found
        for id_, faults in queue.faults.items()
        if not id_ or (id_ in wanted and not tolerant)
        for problem in faults
    ]
    problems += _missing(made)
    if problems:
        raise QueueError(problems)
    return made


def read_all(own: Path, others: Sequence[Path]) -> tuple[Queue, ...]:
    """Read queues, whatever is wrong with single patches of them.

    Args:
        own: The directory of the project's own queue.
        others: The directories of the queues on top of it.

    Raises:
        QueueError: if one is no queue, or two share a name or the id of a patch.
    """
    queues = [reader.read(own), *(reader.read(directory, own=False) for directory in others)]
    problems = []
    names: dict[str, Queue] = {}
    ids: dict[str, Queue] = {}
    for queue in queues:
        if queue.name in names:
            message = f"{queue.name!r} is the name of {names[queue.name].directory} as well"
            problems.append(Problem(f"{queue.directory}/series.toml", "name", message))
        names.setdefault(queue.name, queue)
        for id_ in _ids(queue):
            if id_ in ids:
                message = f"{id_!r} is a patch of {ids[id_].directory} as well"
                problems.append(Problem(f"{queue.directory}/series.toml", "patches", message))
            ids.setdefault(id_, queue)
    if problems:
        raise QueueError(problems)
    return tuple(queues)


def _ids(queue: Queue) -> list[str]:
    """Return the ids of all patches of a queue, those that break the format at the end."""
    return [patch.id for patch in queue.patches] + [id_ for id_ in queue.faults if id_]


def _chosen(known: Sequence[str], text: str) -> set[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    without = [word[1:] for word in words if word.startswith("-")]
    named = without or words
    if without and len(without) != len(words):
        raise QueueError(
            [Problem("NRL_VLLM_PATCHES", "", f"{text!r} takes patches and leaves out others")]
        )
    unknown = [word for word in named if word not in known]
    if unknown:
        message = f"no such patch: {', '.join(unknown)}; there are {', '.join(known)}"
        raise QueueError([Problem("NRL_VLLM_PATCHES", "", message)])
    if without:
        return set(known) - set(without)
    return set(words or known)


def _missing(made: Stack) -> list[Problem]:
    """Find patches that need or amend one that does not come before them."""
    problems = []
    earlier: set[str] = set()
    for patch in made.patches:
        for field, names in (("needs", patch.needs), ("amends", patch.amends)):
            for other in names:
                if other not in earlier:
                    reason = "is left out" if other in made.left_out else "does not come before it"
                    file = f"{patch.directory}/patch.toml"
                    problems.append(Problem(file, field, f"{other!r} {reason}"))
        earlier.add(patch.id)
    return problems
