"""Where a project's files are: the one object that knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Project:
    """A source tree of vllm-nemo: a checkout, or an unpacked sdist."""

    root: Path

    @classmethod
    def here(cls) -> Project:
        """Return the tree that this code is part of."""
        return cls(Path(__file__).resolve().parent.parent)

    @property
    def queue(self) -> Path:
        """The directory of the project's own queue: series.toml, patches/, locks/."""
        return self.root / "overlay"

    @property
    def package(self) -> Path:
        """The sources of the run-time package."""
        return self.queue / "vllm_nemo"

    @property
    def licence(self) -> Path:
        """The project's licence."""
        return self.root / "LICENSE"

    @property
    def readme(self) -> Path:
        """The front page, which holds a generated table."""
        return self.root / "README.md"

    @property
    def matrix(self) -> Path:
        """The matrix of the tests: what each supported release needs to run."""
        return self.root / "ci" / "matrix.toml"

    @property
    def pages(self) -> Path:
        """The directory of the generated pages, one a patch."""
        return self.root / "docs" / "patches"

    @property
    def sdist_metadata(self) -> Path:
        """The metadata of an sdist; a checkout has no such file."""
        return self.root / "PKG-INFO"

    def trees(self, release: str) -> Path:
        """Return where a port to a release leaves files with conflict markers.

        Args:
            release: The release, as vLLM spells it.
        """
        return self.root / "build" / "port" / release

    def shown(self, path: Path) -> str:
        """Return a path as a message shows it.

        Args:
            path: Any path; one below the root is shown relative to it.
        """
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
