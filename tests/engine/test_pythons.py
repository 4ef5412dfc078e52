"""On every Python that a supported vLLM installs on, the line of our .pth file does its work."""

from __future__ import annotations

from email.parser import HeaderParser
from typing import TYPE_CHECKING

from tests.support.pep_829 import without_the_line

if TYPE_CHECKING:
    from tests.support.environment import Environment


def test_no_python_of_this_vllm_ignores_the_line(vllm_env: Environment) -> None:
    """If this fails, the wheel needs a .start file beside its .pth (PEP 829).

    With another stem: Python 3.15 to 3.17 pass over the import lines of a .pth file that has a
    .start file of its own stem, and run that after all other .pth files.
    """
    found = vllm_env.root.glob("lib/python3*/site-packages/vllm*.dist-info/METADATA")
    (file,) = (path for path in found if not path.parent.name.startswith("vllm_nemo-"))
    metadata = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
    requires = metadata.get("Requires-Python", "")
    assert without_the_line(requires) == [], f"vLLM {vllm_env.release} requires {requires!r}"
