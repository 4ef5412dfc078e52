"""The calendar of PEP 829: on which Pythons an import line in a .pth file does its work."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

# Up to 3.17 site runs such a line; 3.18 and 3.19 pass over it without a word, 3.20 warns.
FIRST_WITHOUT = 18
# Beyond the last minor version that anybody will name in a Requires-Python soon.
_END = 100


def without_the_line(requires_python: str) -> list[str]:
    """Return the Pythons that a Requires-Python allows and on which the line does nothing.

    An empty Requires-Python allows all of them.
    """
    allowed = SpecifierSet(requires_python)
    pythons = [f"3.{minor}" for minor in range(FIRST_WITHOUT, _END)]
    return [python for python in [*pythons, "4.0"] if allowed.contains(f"{python}.0")]
