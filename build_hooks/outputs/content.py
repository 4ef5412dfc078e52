"""What a wheel is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from build_hooks.assembly.assemble import Overlay
    from build_hooks.outputs.naming import Identity
    from build_hooks.project import Project
    from build_hooks.queues.model import Queue


@dataclass(frozen=True)
class Content:
    """What a wheel is made of. Everything is checked: from here on, only files are written.

    Attributes:
        project: The source tree.
        identity: The wheel's version and requirement.
        overlay: The patches applied to the base.
        verified: The queues whose locks of the release the overlay reproduces.
        licence: The text of the base's licence.
    """

    project: Project
    identity: Identity
    overlay: Overlay
    verified: tuple[Queue, ...]
    licence: bytes

    @property
    def locked(self) -> bool:
        """Whether our own queue made what its lock of the release says."""
        return self.overlay.stack.own in self.verified
