"""Reads the fields of a queue's TOML tables strictly, and collects what is wrong with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from build_hooks.diffs import paths
from build_hooks.errors import Problem
from build_hooks.queues.model import PROOFS, Condition, Upstream
from build_hooks.releases import spell, strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from build_hooks.queues.model import Place

_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{7,40})", re.ASCII)
_KIND = re.compile("issue|pull|commit")
_PLACE = re.compile(r"vllm(\.\w+)*:\w+(\.\w+)*", re.ASCII)
# The answer under [place]: the module looks beside vLLM's own file.
STOCK = "stock"
ONE_LINE = re.compile(r"[^\r\n]+")


class Fields:
    """Reads the fields of one TOML table. What is wrong with one is added to ``problems``.

    Each method takes the name of a field, and returns its value, or an empty one for a wrong field.
    """

    def __init__(self, data: Mapping[str, Any], file: str, problems: list[Problem]) -> None:
        self._data = data
        self._file = file
        self._problems = problems
        self._known: set[str] = set()

    def _fault(self, field: str, message: str) -> None:
        self._problems.append(Problem(self._file, field, message))

    def _get(self, field: str, kind: type, noun: str, *, required: bool = True) -> Any:  # noqa: ANN401
        self._known.add(field)
        if field not in self._data:
            if required:
                self._fault(field, "is missing")
            return kind()
        value = self._data[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            self._fault(field, f"must be {noun}")
            return kind()
        return value

    def end(self) -> None:
        """Refuse fields that were not read: a misspelt one would be ignored in silence."""
        for field in self._data:
            if field not in self._known:
                self._fault(field, f"is unknown; known are {', '.join(sorted(self._known))}")

    def text(
        self,
        field: str,
        *,
        required: bool = True,
        pattern: re.Pattern[str] | None = None,
        meaning: str = "",
    ) -> str:
        """Read a text.

        Args:
            field: The field.
            required: Whether it must be there.
            pattern: What the whole text has to match.
            meaning: What the pattern stands for, in words.
        """
        before = len(self._problems)
        value: str = self._get(field, str, "a string", required=required).strip()
        if len(self._problems) > before:
            return ""
        if not value and field in self._data:
            self._fault(field, "is empty")
        elif pattern and value and not pattern.fullmatch(value):
            self._fault(field, f"must be {meaning}, not {value!r}")
        return value

    def number(self, field: str) -> int:
        """Read a whole number from 1 on."""
        before = len(self._problems)
        value: int = self._get(field, int, "a whole number")
        if len(self._problems) == before and value < 1:
            self._fault(field, "must be 1 or more")
        return value

    def strings(self, field: str, *, required: bool = True) -> list[str]:
        """Read a list of texts."""
        value = self._get(field, list, "a list of strings", required=required)
        if not all(isinstance(item, str) for item in value):
            self._fault(field, "must be a list of strings")
            return []
        return list(value)

    def releases(self, field: str) -> tuple[Version, ...]:
        """Read a list of releases, which has to be in ascending order."""
        before = len(self._problems)
        found = []
        for text in self.strings(field):
            release = strict(text)
            if release is None:
                self._fault(field, f"{text!r} is not a release such as 0.29.0")
            else:
                found.append(release)
        if found != sorted(set(found)):
            self._fault(field, "must be in ascending order, each once")
        if not found and len(self._problems) == before:
            self._fault(field, "names no release")
        return tuple(found)

    def specifiers(self, field: str) -> SpecifierSet:
        """Read a range of versions."""
        text = self.text(field)
        try:
            found = SpecifierSet(text)
            found.contains(Version("0"))
        except ValueError:
            # InvalidSpecifier, or a number of too many digits, which is read only when needed.
            self._fault(field, f"{text!r} is not a version range such as >=0.25.0,<0.29")
            return SpecifierSet()
        return found

    def by_release(self, field: str) -> dict[Version, str]:
        """Read a table of releases and reasons."""
        found = {}
        for text, value in self._get(field, dict, "a table", required=False).items():
            release = strict(text)
            if release is None:
                self._fault(field, f"{text!r} is not a release such as 0.29.0")
            elif not isinstance(value, str) or not value.strip():
                self._fault(f"{field}.{text}", "must be a reason, in words")
            else:
                found[release] = value.strip()
        return found

    def proof(self, field: str) -> dict[Version, str]:
        """Read a table of releases and the levels of proof that hold from each of them on."""
        found = {}
        for text, value in self._get(field, dict, "a table", required=False).items():
            release = strict(text)
            if release is None:
                self._fault(field, f"{text!r} is not a release such as 0.29.0")
            elif value not in PROOFS:
                self._fault(f"{field}.{text}", f"must be one of {', '.join(PROOFS)}")
            else:
                found[release] = value
        return found

    def conditions(self, field: str) -> tuple[Condition, ...]:
        """Read a list of conditions, each with one of ``requires``, ``symbol`` and ``call``."""
        found = []
        for number, entry in enumerate(self._get(field, list, "a list", required=False), 1):
            where = f"{field}[{number}]"
            if not isinstance(entry, dict) or len(entry) != 1:
                self._fault(where, "must have one of requires, symbol, call")
                continue
            before = len(self._problems)
            table = Fields(entry, f"{self._file}: {where}", self._problems)
            requires = table.text("requires", required=False)
            symbol, call = (
                table.text(kind, required=False, pattern=_PLACE, meaning="vllm.module:name")
                for kind in ("symbol", "call")
            )
            table.end()
            try:
                Requirement(requires or "any")
            except InvalidRequirement as error:
                table._fault("requires", f"{requires!r} is no requirement: {error}")
            if len(self._problems) == before:
                found.append(Condition(requires, symbol, call))
        return tuple(found)

    def requirements(self, field: str) -> list[str]:
        """Read a list of requirements (PEP 508); the field may be missing."""
        found = []
        for text in self.strings(field, required=False):
            try:
                found.append(str(Requirement(text)))
            except InvalidRequirement as error:
                self._fault(field, f"{text!r} is no requirement: {error}")
        return found

    def ends(self, field: str) -> dict[str, Version]:
        """Read a table of files and the releases since which they are no longer changed."""
        found = {}
        for path, text in self._get(field, dict, "a table", required=False).items():
            release = strict(text) if isinstance(text, str) else None
            if release is None:
                self._fault(f"{field}.{path}", f"{text!r} is not a release such as 0.29.0")
            else:
                found[path] = release
        return found

    def places(self, field: str) -> dict[str, Place]:
        """Read a table of modules and where they find files."""
        found: dict[str, Place] = {}
        for path, answer in self._get(field, dict, "a table", required=False).items():
            where = f"{field}.{path}"
            names = answer if isinstance(answer, list) else [] if answer == STOCK else None
            if not paths.is_module(path) or any(paths.faults(path)):
                self._fault(where, "must be a module, as vllm/...py")
            elif names is None or not all(map(_is_relative, names)):
                self._fault(
                    where, f'must be "{STOCK}", or a list of files and directories beside it'
                )
            else:
                found[path] = STOCK if answer == STOCK else tuple(names)
        return found

    def upstream(self, field: str, *, strict: bool = True) -> tuple[Upstream, ...]:
        """Read a list of upstream references; without ``strict``, one may be any text."""
        found = []
        for number, entry in enumerate(self._get(field, list, "a list", required=False), 1):
            where = f"{field}[{number}]"
            if not isinstance(entry, dict):
                self._fault(where, "must be a table")
                continue
            before = len(self._problems)
            table = Fields(entry, f"{self._file}: {where}", self._problems)
            kind = table.text("kind", pattern=_KIND, meaning="issue, pull or commit")
            ref = table.text(
                "ref",
                pattern=_REFERENCE if strict else None,
                meaning="owner/repository#1 or @commit",
            )
            note = table.text("note", required=False, pattern=ONE_LINE, meaning="one line")
            fixed = table.text("fixed-in", required=False)
            table.end()
            if fixed and spell(fixed) is None:
                table._fault("fixed-in", f"{fixed!r} is not a release")
            if len(self._problems) == before:
                found.append(Upstream(kind, ref, note, spell(fixed) if fixed else None))
        return tuple(found)


def _is_relative(name: object) -> bool:
    """Tell whether a name under [place] is one below the module's directory."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    return not {"", ".", ".."} & set(parts) and name.isprintable() and "\\" not in name
