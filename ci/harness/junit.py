"""Reads the JUnit XML that pytest writes with ``--junitxml``."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTCOMES = (PASSED, FAILED, SKIPPED)
# The elements that tell how a test ended, the worst first; without one it passed.
_ELEMENTS = {"failure": FAILED, "error": FAILED, "skipped": SKIPPED}


class RecordError(Exception):
    """There is no record, or not a whole one."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One test.

    Attributes:
        module: The dotted name of its module, and of its class if it has one.
        name: Its own name, with parameters.
        outcome: One of ``OUTCOMES``.
        seconds: How long it took.
        reason: Why it failed or was skipped; empty if it passed.
        properties: What it noted by ``record_property`` or ``user_properties``.
    """

    module: str
    name: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""
    properties: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> set[str]:
        """Return all values of a property."""
        return {value for known, value in self.properties if known == name}


def read(path: Path) -> list[Case]:
    """Return every test of a record.

    Raises:
        RecordError: if there is none, or not a whole one.
    """
    try:
        root = ET.parse(path).getroot()  # noqa: S314  (pytest wrote it, a moment ago)
    except (OSError, ET.ParseError) as error:
        raise RecordError(f"{path}: {error}") from error
    return [_case(element) for element in root.iter("testcase")]


def count(cases: Iterable[Case]) -> dict[str, int]:
    """Return how many tests ended in each way, the ways in the order of ``OUTCOMES``."""
    outcomes = [case.outcome for case in cases]
    return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}


def _case(element: ET.Element) -> Case:
    told = next((found for kind in _ELEMENTS if (found := element.find(kind)) is not None), None)
    return Case(
        module=element.get("classname", ""),
        name=element.get("name", ""),
        outcome=PASSED if told is None else _ELEMENTS[told.tag],
        seconds=float(element.get("time", 0)),
        reason="" if told is None else told.get("message", ""),
        properties=tuple(
            (item.get("name", ""), item.get("value", "")) for item in element.iter("property")
        ),
    )
