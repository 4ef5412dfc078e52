"""``import``: any diff of any file comes in; no source ends in a traceback."""

from __future__ import annotations

import difflib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build_hooks.assembly.tree import Tree
from build_hooks.bases.directory import DirectoryBase, from_directory
from build_hooks.diffs.reader import parse
from build_hooks.errors import BuildError
from build_hooks.intake import arrival, message
from build_hooks.intake.bring import bring
from build_hooks.intake.door import Options
from tests.support import foreign, stand_in


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> DirectoryBase:
    """Write the release once; an example writes its own module only."""
    return from_directory(stand_in.write(tmp_path_factory.mktemp("base"), foreign.FILES))


def _bring(
    base: DirectoryBase, text: bytes, options: Options
) -> tuple[list[arrival.Brought], Tree]:
    tree = Tree(base)
    patches = message.patches(text, "it.patch", "it")
    return bring([("it", patch) for patch in patches], tree, options), tree


# Few different lines, so that most contexts occur more than once.
LINES = st.lists(st.sampled_from(["x = 1", "y = 2", "", "pass", "z = 3"]), max_size=30)


@settings(max_examples=300)
@given(old=LINES, seed=st.integers(0, 2**32), context=st.integers(1, 4), end=st.booleans())
def test_any_diff_of_any_file_comes_in_and_again_the_same(
    base: DirectoryBase, old: list[str], seed: int, context: int, end: bool
) -> None:
    chance = random.Random(seed)  # noqa: S311
    new = list(old)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(new))
        new[at : at + chance.randint(0, 2)] = ["added"] * chance.randint(0, 2)
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    if not end:
        before, after = before.removesuffix("\n"), after.removesuffix("\n")
    if before == after:
        return
    stand_in.write(base.root, {"vllm/m.py": before})
    # A base reads a file once.
    base = from_directory(base.root)
    diff = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            "a/vllm/m.py",
            "b/vllm/m.py",
            n=context,
        )
    )
    texts = [diff]
    for _ in range(2):
        (brought,), tree = _bring(base, texts[-1].encode(), Options())
        assert tree.current("vllm/m.py") == after.encode()
        assert not brought.review
        texts.append(brought.text)
    assert texts[1] == texts[2]
    (file,) = parse(texts[1].encode())
    assert file.text.decode() == texts[1]


NOISE = st.text(alphabet="@-+ \n\\,01adfi/vlm.py\t\r", max_size=200)


@settings(max_examples=300)
@given(source=st.binary(max_size=200) | NOISE.map(str.encode))
def test_no_source_ends_in_anything_but_patches_or_an_error(
    base: DirectoryBase, source: bytes
) -> None:
    header = b"--- a/vllm/models.py\n+++ b/vllm/models.py\n@@ -1,2 +1,2 @@\n"
    for text in (source, header + source, b"diff --git a/x b/x\n" + source):
        try:
            _bring(base, text, Options(fuzz=True))
        except BuildError:
            continue
