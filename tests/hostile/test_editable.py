"""A vLLM in editable mode, by setuptools: as a base, served over, and edited under the overlay."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from build_hooks.bases.installed import find_installed
from tests.support import editable, installers, source

WHEEL = "vllm_nemo-0.29.0.1+base.0.29.1.dev3.gabc-py3-none-any.whl"
PLAIN = "import vllm.plain, vllm.engine; print(vllm.plain.SEEN, *vllm.engine.__path__)"
WORKS = f"{editable.VERSION} 2.0 6"


@dataclasses.dataclass
class Editable:
    """An environment with an editable vLLM, and an overlay that was built from it."""

    env: installers.Environment
    checkout: Path
    mode: str
    tree: source.Tree

    def build(self, out: Path) -> Path:
        """Build from what is installed."""
        env = {"VIRTUAL_ENV": str(self.env.interpreter.root)}
        self.tree.build("python -m build_hooks", out, base="installed", env=env)
        (wheel,) = out.glob("*.whl")
        return wheel

    @property
    def imported(self) -> Path:
        """The directory that `import vllm` leads to."""
        if self.mode != "strict":
            return self.checkout / "vllm"
        (links,) = self.checkout.glob("build/__editable__.*/vllm")
        return links

    def doctor(self) -> tuple[int, dict[str, Any]]:
        process = self.env.interpreter.run("-m", "vllm_nemo", "doctor", "--json")
        report: dict[str, Any] = json.loads(process.stdout)
        return process.returncode, report

    @contextmanager
    def edited(self, path: str, *, replaced: bool = False) -> Iterator[None]:
        """Add a line to a file of the checkout: in place, or as editors do that write a new one."""
        file = self.checkout / path
        text = file.read_text()
        target = file.with_suffix(".new") if replaced else file
        target.write_text(f"{text}SEEN = 2\n")
        target.replace(file)
        yield
        file.write_text(text)


def make(root: Path, tree: source.Tree, tool: str, mode: str) -> Editable:
    env = installers.Environment(root / "env", tool, root)
    checkout = editable.write_checkout(root / "my checkout")
    editable.install(env, checkout, mode)
    made = Editable(env, checkout, mode, tree)
    env.install(f"--no-deps {made.build(root / 'dist')}")
    return made


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> source.Tree:
    return source.make(tmp_path_factory.mktemp("tree"))


@pytest.fixture(
    scope="module",
    params=[(tool, mode) for tool in ("pip", "uv") for mode in editable.MODES],
    ids="-".join,
)
def made(
    request: pytest.FixtureRequest, tree: source.Tree, tmp_path_factory: pytest.TempPathFactory
) -> Editable:
    tool, mode = request.param
    return make(tmp_path_factory.mktemp(f"{tool}-{mode}"), tree, tool, mode)


def test_it_is_a_base_under_its_own_name(made: Editable) -> None:
    base = find_installed([made.env.interpreter.site_packages])
    assert base is not None
    assert base.root == made.checkout
    assert (base.distribution, base.version) == ("acme-vllm", Version(editable.VERSION))
    assert not base.pristine
    # Its files are those of a release.
    assert [path.name for path in (made.env.interpreter.root.parent / "dist").iterdir()] == [WHEEL]


def test_the_overlay_is_served_over_it(made: Editable) -> None:
    assert made.env.works() == WORKS
    assert made.env.interpreter.prints("-c", PLAIN) == f"1 {made.imported}/engine"
    assert made.env.consistent()
    status, report = made.doctor()
    assert status == 0, report
    assert report["vllm"]["directory"] == str(made.imported)
    assert report["vllm"]["distributions"] == [f"acme-vllm {editable.VERSION}"]
    assert {check["state"] for check in report["checks"]} == {"ok"}


def test_an_edit_of_a_file_that_is_not_replaced_is_seen_and_disturbs_nothing(
    made: Editable,
) -> None:
    with made.edited("vllm/plain.py"):
        assert made.env.interpreter.prints("-c", PLAIN).startswith("2 ")
        assert made.env.works() == WORKS
        assert made.env.holds()


@pytest.mark.parametrize("replaced", [False, True])
def test_an_edit_of_a_file_that_is_replaced_is_an_error(made: Editable, replaced: bool) -> None:
    with made.edited("vllm/models.py", replaced=replaced):
        error = made.env.interpreter.fails("-c", installers.WORKS)
        assert "  changed: vllm/models.py\n" in error
        # An index has no such vLLM, and a release from there would take the place of the checkout.
        assert re.findall(r"(?m)^  (.*pip install .*)$", error) == [
            "NRL_VLLM_BASE=installed pip install .   # in vllm-nemo's source tree"
        ]
        assert f"  # undo what was changed below {made.checkout}/vllm\n" in error
        assert not made.env.holds()
    assert made.env.works() == WORKS


def test_an_overlay_that_is_built_anew_takes_the_edit_in(tree: source.Tree, tmp_path: Path) -> None:
    made = make(tmp_path, tree, "uv", "default")
    with made.edited("vllm/models.py"):
        made.env.install(f"--no-deps {made.build(tmp_path / 'again')}")
        assert made.env.works() == WORKS
        seen = "import vllm.models; print(vllm.models.SEEN)"
        assert made.env.interpreter.prints("-c", seen) == "2"
        status, report = made.doctor()
        assert status == 0, report
        assert report["overlay"] == "0.29.1.1+unlocked.dev3.gabc"
