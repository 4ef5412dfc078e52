"""What a patch queue says: its patches, their variants, and the releases that it supports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.files import sha256
from build_hooks.releases import final

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from build_hooks.diffs.model import FileDiff
    from build_hooks.errors import Problem


@dataclass(frozen=True)
class Upstream:
    """A public issue, pull request or commit that a patch answers to."""

    kind: str
    ref: str
    note: str
    fixed_in: Version | None

    @property
    def url(self) -> str:
        """Return the page of the reference; a reference of another form as it is."""
        if not re.fullmatch(r"[\w.-]+/[\w.-]+[#@]\w+", self.ref, re.ASCII):
            # Of another queue, whose references are free.
            return self.ref
        repository, name = re.split("[#@]", self.ref, maxsplit=1)
        kind = {"issue": "issues", "pull": "pull", "commit": "commit"}[self.kind]
        return f"https://github.com/{repository}/{kind}/{name}"


# How a release allows a patch to be proven, the best first: by a real engine; by vLLM's own classes
# without an engine; by its Python sources, beside the compiled libraries of another release.
ENGINE, WIRING, SOURCES = PROOFS = ("engine", "wiring", "sources")

# Where a served module finds files: "stock", beside vLLM's own file; or in the overlay, which then
# has a copy of each file and directory that is named, relative to the module's directory.
Place = str | tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    """A condition on which a patch can go; one of the three is given.

    Attributes:
        requires: A requirement such as ``openai>=2.25.0``: the base requires at least that.
        symbol: A name such as ``vllm.config.model:ModelConfig.head_dtype``: the base defines it.
        call: A call such as ``vllm.model_executor.models.radio:layer_norm``: the module makes it.
    """

    requires: str = ""
    symbol: str = ""
    call: str = ""

    def __str__(self) -> str:
        """Say the condition in words."""
        if self.requires:
            return f"vLLM requires {self.requires}"
        module, _, name = (self.symbol or self.call).partition(":")
        return f"{module} {'defines' if self.symbol else 'calls'} {name}"


@dataclass(frozen=True)
class Variant:
    """One diff file of a patch: ``<release>.patch``.

    The diff of each file in it is used from ``release`` on, until a newer variant has one of the
    same file, or the patch stops changing that file.
    """

    release: Version
    files: tuple[FileDiff, ...]


@dataclass(frozen=True)
class ReleaseDiff:
    """The whole diff of a patch for one release, put together from its variants.

    Attributes:
        release: The newest variant that has a part in it.
        files: The diff of each file, in the order of their paths.
        variants: For each path, the variant that its diff comes from.
    """

    release: Version
    files: tuple[FileDiff, ...]
    variants: Mapping[str, Version]

    @property
    def text(self) -> bytes:
        """The diff as one text."""
        return b"".join(file.text for file in self.files)


@dataclass(frozen=True)
class Patch:
    """One patch of the queue, as ``patch.toml`` and its diffs tell it.

    Attributes:
        id: The name of its directory.
        queue: The name of its queue.
        directory: Where its diffs lie.
        releases: The releases that its queue supports.
        module: The module of the run-time package that has its logic; empty if it needs none.
        vllm: The range of releases that need it.
        amends: Earlier patches that it may undo.
        needs: Patches that it cannot do without; they come before it.
        requires: Distributions that its logic imports, as requirements.
        ends: Files that it no longer changes, and since which release.
        place: For modules that find files by their own place, where these are.
        not_needed: For each supported release outside the range, why.
        variants: Its diff files, oldest first.
        review: What an import was not sure of, and a person has not looked at yet.
        proof: Levels of proof, each from a release on, where these allow others a better one.
        remove_when: Conditions, any one of which means that the patch can go.
    """

    id: str
    queue: str
    directory: Path
    releases: tuple[Version, ...]
    title: str
    why: str
    risk: str
    removal: str
    vllm: SpecifierSet
    switch: str
    module: str
    logic: str
    upstream: tuple[Upstream, ...]
    amends: tuple[str, ...]
    needs: tuple[str, ...]
    requires: tuple[str, ...]
    ends: Mapping[str, Version]
    place: Mapping[str, Place]
    not_needed: Mapping[Version, str]
    notes: Mapping[Version, str]
    variants: tuple[Variant, ...]
    review: tuple[str, ...] = ()
    proof: Mapping[Version, str] = field(default_factory=dict)
    remove_when: tuple[Condition, ...] = ()

    def variant_file(self, release: Version) -> Path:
        """Return where the variant for a release lies, or would lie.

        Args:
            release: The release of the variant.
        """
        return self.directory / f"{release}.patch"

    def needed(self, release: Version) -> bool:
        """Tell whether a base needs the patch.

        Args:
            release: The version of the base; one that is no release counts as its release.
        """
        return self.vllm.contains(final(release), prereleases=True)

    def changes(self, path: str, release: Version) -> bool:
        """Tell whether the patch has not stopped changing a file by a release.

        Args:
            path: The file, as ``vllm/...``.
            release: The version of the base.
        """
        end = self.ends.get(path)
        return end is None or final(release) < end

    def diff(self, release: Version) -> ReleaseDiff | None:
        """Put the whole diff for a release together.

        Args:
            release: The version of the base; one that is no release counts as its release.

        Returns:
            Of each file, the diff in its newest variant; None if no variant serves the release.
        """
        return self._put_together(
            [variant for variant in self.variants if variant.release <= final(release)], release
        )

    def inherited(self, release: Version) -> ReleaseDiff | None:
        """Put the whole diff for a release together from the variants of older releases alone.

        Args:
            release: The version of the base.

        Returns:
            The diff; None if no older variant serves the release.
        """
        return self._put_together(
            [variant for variant in self.variants if variant.release < final(release)], release
        )

    def _put_together(self, variants: Iterable[Variant], release: Version) -> ReleaseDiff | None:
        found = {
            file.path: (variant.release, file)
            for variant in variants
            for file in variant.files
            if not self._ended(file.path, variant.release, release)
        }
        if not found:
            return None
        return ReleaseDiff(
            max(since for since, _ in found.values()),
            tuple(file for _, (_, file) in sorted(found.items())),
            {path: since for path, (since, _) in sorted(found.items())},
        )

    def _ended(self, path: str, since: Version, release: Version) -> bool:
        end = self.ends.get(path)
        return end is not None and since < end <= final(release)

    def with_variant(self, release: Version, files: tuple[FileDiff, ...]) -> Patch:
        """Return the patch with another variant for a release.

        Args:
            release: The release.
            files: The diffs of the variant; if there are none, the release has no variant.
        """
        variants = [variant for variant in self.variants if variant.release != release]
        if files:
            variants.append(Variant(release, files))
        ordered = sorted(variants, key=lambda variant: variant.release)
        return replace(self, variants=tuple(ordered))

    def reason(self, release: Version) -> str:
        """Tell why a base does not need the patch.

        Args:
            release: The version of the base, outside the patch's range.

        Returns:
            The reason for that release, or for the one before it, or that it is outside the range.
        """
        older = [known for known in self.not_needed if known <= final(release)]
        return self.not_needed[max(older)] if older else f"outside the range {self.vllm}"


@dataclass(frozen=True)
class Queue:
    """A queue: where it lies, and what of it can be used.

    Attributes:
        directory: Where it lies.
        name: Its name, which is fit for the local part of a version.
        releases: The supported releases, oldest first.
        revision: Counts what has been published of it.
        requires: Distributions that its patches import, as requirements.
        patches: The patches in their order, without those that break the format.
        faults: What is wrong, by the id of the patch; under "" what is wrong with the queue itself.
        proof: Levels of proof, each from a release on; before the first, it is a real engine.
    """

    directory: Path
    name: str
    releases: tuple[Version, ...]
    revision: int
    requires: tuple[str, ...]
    patches: tuple[Patch, ...]
    faults: Mapping[str, tuple[Problem, ...]]
    proof: Mapping[Version, str] = field(default_factory=dict)

    @property
    def sources(self) -> list[Path]:
        """The Python sources that come with the queue, beside its diffs."""
        places = [self.directory / "vllm_nemo", self.directory / "python"]
        return sorted(file for place in places for file in place.rglob("*.py"))

    def proven(self, release: Version, patch: Patch | None = None) -> str:
        """Tell how a release allows its patches to be proven.

        Args:
            release: A supported release.
            patch: One of the patches; None for what the release allows most of them.

        Returns:
            A word of ``PROOFS``.
        """
        levels = [_since(self.proof, release), _since(patch.proof, release) if patch else ENGINE]
        return max(levels, key=PROOFS.index)

    @property
    def digest(self) -> str:
        """The sha256 of everything that the queue brings into a wheel, in hex."""
        files = [self.directory / "series.toml"]
        for name in ("patches", "python"):
            files += sorted(p for p in (self.directory / name).rglob("*") if p.is_file())
        listed = [
            f"{path.relative_to(self.directory).as_posix()} {sha256(path.read_bytes())}\n"
            for path in files
            if "__pycache__" not in path.parts
        ]
        return sha256("".join(listed).encode())


def _since(proof: Mapping[Version, str], release: Version) -> str:
    """Return the level that holds from the newest release on that is not newer than this one."""
    older = [known for known in proof if known <= release]
    return proof[max(older)] if older else ENGINE
