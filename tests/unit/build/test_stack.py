"""Queues on top of one another: what is taken, what it is called, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from build_hooks import build, cli
from build_hooks.errors import BuildError, LockError, QueueError
from build_hooks.outputs import manifest
from build_hooks.queues.stack import stack
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.outputs.content import Content
    from tests.support.project import Small

NEW = "@@ -1,2 +1,3 @@\n from vllm.models import Model\n+A = 1\n \n"
DATA = "vllm/engine/__init__.py"
RUN = """\
--- a/vllm/engine/__init__.py
+++ b/vllm/engine/__init__.py
@@ -6,2 +6,3 @@
     return Model().forward(x)
+# {text}
\x20
"""


def other(root: Path, name: str = "acme", text: str = "Acme.", **fields: Any) -> Path:
    """Write a queue with one patch, and only what the format cannot do without."""
    series = {"name": name, "revision": 3, "releases": ["0.29.0"], "patches": [f"{name}-one"]}
    series |= fields.pop("series", {})
    home = root / name
    stand_in.write(home, {"series.toml": stand_in.toml(series)})
    table = {"title": "One", "vllm": ">=0.25.0", **fields}
    diff = RUN.format(text=text)
    files = {"patch.toml": stand_in.toml(table), "0.25.0.patch": diff}
    stand_in.write(home / "patches" / f"{name}-one", files)
    return home


def make(project: Small, *queues: Path, **settings: Any) -> Content:
    chosen = build.Settings("0.29.0", queues=tuple(map(str, queues)), **settings)
    build.make.cache_clear()
    name = build.identify(project, chosen)
    build.make.cache_clear()
    made = build.make(project, chosen)
    assert made.identity == name
    return made


def outcomes(made: Content) -> dict[str, str]:
    return {outcome.patch.id: outcome.outcome for outcome in made.overlay.outcomes}


def test_another_queue_comes_after_ours_and_is_in_the_name(project: Small) -> None:
    made = make(project, other(project.root))
    assert made.identity.version == "0.29.0.1+acme.3"
    assert list(outcomes(made)) == ["sqrt", "scale", "head", "acme-one"]
    (engine,) = [module for module in made.overlay.modules if module.path == DATA]
    assert engine.patches == ("sqrt", "acme-one")
    # Ours is still what our lock says.
    assert made.verified == (made.overlay.stack.own,)


def test_two_queues_are_in_the_name_in_their_order(project: Small) -> None:
    queues = [other(project.root, "beta"), other(project.root, "acme", text="Beta first.")]
    with pytest.raises(BuildError, match="beta-one"):
        # The same place: the second one's context is gone.
        make(project, *queues)
    stand_in.write(
        queues[1] / "patches" / "acme-one",
        {
            "0.25.0.patch": RUN.replace(
                "@@ -6,2 +6,3 @@\n     return Model().forward(x)\n+# {text}\n \n", NEW
            )
        },
    )
    made = make(project, *queues, patches="-head")
    assert made.identity.version.startswith("0.29.0.1+beta.3.acme.3.subset.")


@pytest.mark.parametrize(
    ("patches", "taken"),
    [("sqrt", ["sqrt"]), ("-sqrt,-head", ["scale"]), ("head, sqrt", ["sqrt", "head"])],
)
def test_patches_are_chosen_or_left_out(project: Small, patches: str, taken: list[str]) -> None:
    made = make(project, patches=patches)
    assert list(outcomes(made)) == taken
    assert made.identity.version.startswith("0.29.0.1+subset.")
    assert len(made.identity.version.rpartition(".")[2]) == 8
    assert made.locked


def test_the_same_choice_has_the_same_name_and_another_another(project: Small) -> None:
    names = [make(project, patches=p).identity.version for p in ("sqrt", "-scale,-head", "scale")]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ("sqrt,-head", "takes patches and leaves out others"),
        ("nothing", "no such patch: nothing; there are sqrt, scale, head"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    project: Small, patches: str, message: str
) -> None:
    with pytest.raises(QueueError, match=message):
        make(project, patches=patches)


def test_what_a_patch_needs_comes_before_it(project: Small) -> None:
    queue = other(project.root, needs=["scale"])
    make(project, queue)
    with pytest.raises(QueueError, match="needs: 'scale' is left out"):
        make(project, queue, patches="-scale")
    with pytest.raises(QueueError, match="needs: 'gone' does not come before it"):
        make(project, other(project.root, needs=["gone"]))


def test_a_patch_of_another_queue_undoes_none_of_ours(project: Small) -> None:
    queue = other(project.root)
    undo = RUN.replace("@@ -6,2 +6,3 @@\n     return Model().forward(x)\n+# {text}\n", "")
    undo += "@@ -4,3 +4,2 @@\n def run(x):\n-    x = float(x)\n     return Model().forward(x)\n"
    undo = undo.replace(" \n@@", "@@")
    stand_in.write(queue / "patches" / "acme-one", {"0.25.0.patch": undo})
    with pytest.raises(BuildError, match="undoes sqrt: it takes out line 5, which sqrt put in"):
        make(project, queue)
    toml = stand_in.toml({"title": "One", "vllm": ">=0.25.0", "amends": ["sqrt"]})
    stand_in.write(queue / "patches" / "acme-one", {"patch.toml": toml})
    assert outcomes(make(project, queue))["acme-one"] == "applied"


def test_what_a_queue_requires_the_wheel_requires(project: Small) -> None:
    queue = other(project.root, series={"requires": ["packaging>=20"]}, requires=["numpy"])
    assert make(project, queue).identity.requires == ("packaging>=20", "numpy")
    assert make(project, queue, patches="-acme-one").identity.requires == ()


def test_the_manifest_names_each_queue(project: Small) -> None:
    data = json.loads(manifest.dump(make(project, other(project.root)), {}))
    assert [(q["name"], q["revision"], q["locked"], q["whole"]) for q in data["queues"]] == [
        ("nemo", 1, True, True),
        ("acme", 3, False, True),
    ]
    assert [patch["queue"] for patch in data["patches"]] == ["nemo", "nemo", "nemo", "acme"]
    # The digest is that of the files.
    digest = data["queues"][1]["digest"]
    other(project.root, text="Other.")
    changed = json.loads(manifest.dump(make(project, project.root / "acme"), {}))
    assert changed["queues"][1]["digest"] != digest


def test_a_queue_of_others_has_a_lock_of_its_own(project: Small) -> None:
    queue = other(project.root)
    command = ["lock", "--queue", str(queue), "--wheels", str(project.wheels)]
    assert cli.main(command, project) == 0
    made = make(project, queue)
    assert [known.name for known in made.verified] == ["nemo", "acme"]
    other(project.root, text="Changed.")
    with pytest.raises(LockError, match="does not reproduce acme's lock"):
        make(project, queue)


def test_a_broken_patch_keeps_no_command_from_the_others(
    project: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = other(project.root, series={"patches": ["acme-one", "broken"]})
    stand_in.write(queue / "patches" / "broken", {"patch.toml": "title = 1\n"})
    with pytest.raises(QueueError, match=r"broken/patch.toml: title: must be a string"):
        make(project, queue)
    assert outcomes(make(project, queue, patches="-broken"))["acme-one"] == "applied"
    assert cli.main(["show", "acme-one", "0.29", "--queue", str(queue)], project) == 0
    assert "+# Acme." in capsys.readouterr().out
    assert cli.main(["status", "--queue", str(queue)], project) == 1
    assert "broken    malformed" in capsys.readouterr().out
    assert cli.main(["lint", "--queue", str(queue)], project) == 1
    assert "title: must be a string" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Acme!"}, "name: must be a word such as acme"),
        ({"name": "nemo"}, "'nemo' is the name of"),
        ({"patches": ["sqrt"]}, "'sqrt' is a patch of"),
    ],
)
def test_a_queue_that_is_not_to_be_told_apart_is_refused(
    project: Small, change: dict[str, Any], message: str
) -> None:
    queue = other(project.root, series=change)
    (queue / "patches" / "acme-one").rename(
        queue / "patches" / change.get("patches", ["acme-one"])[0]
    )
    with pytest.raises(QueueError, match=message):
        stack(project.queue, [queue])


def test_a_directory_without_a_queue_is_told(project: Small) -> None:
    with pytest.raises(BuildError, match=r"NRL_VLLM_QUEUE: .* has no series\.toml"):
        make(project, project.root)


def test_the_release_of_an_unknown_base_is_stated(project: Small) -> None:
    changed = project.directory("fork", "0.29.0", _version="version = '0.0.1.dev7'\n")
    stand_in.write(
        changed, {"vllm/models.py": (changed / "vllm/models.py").read_text() + "A = 1\n"}
    )
    settings = build.Settings(str(changed))
    with pytest.raises(BuildError, match="say which in NRL_VLLM_RELEASE"):
        build.make(project, settings)
    made = build.make(project, build.Settings(str(changed), release="v0.29"))
    assert made.identity.version == "0.29.0.1+unlocked.0.0.1.dev7"
    assert made.overlay.release == Version("0.29.0")
    # A base that is known needs no word, and contradicts a wrong one.
    with pytest.raises(BuildError, match=r"NRL_VLLM_RELEASE says 0\.26\.0, but the files of"):
        build.make(project, build.Settings("0.29.0", release="0.26.0"))


def test_a_fix_that_the_base_has_in_its_own_form_is_the_callers_word(project: Small) -> None:
    made = make(project, provided=("scale",))
    assert outcomes(made) == {"sqrt": "applied", "scale": "provided", "head": "not-needed"}
    assert made.identity.version == "0.29.0.1+unlocked"
    with pytest.raises(BuildError, match="NRL_VLLM_PROVIDED names gone; there are"):
        make(project, provided=("gone",))
    with pytest.raises(
        BuildError, match=r"NRL_VLLM_PROVIDED names head, but 0\.29\.0 does not need"
    ):
        make(project, provided=("head",))
