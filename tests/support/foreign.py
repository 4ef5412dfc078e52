"""A small release and a patch for it, in every shape that published patches have."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks import cli
from build_hooks.assembly.assemble import Overlay, assemble
from build_hooks.bases.wheel import from_wheel
from build_hooks.project import Project
from build_hooks.queues.stack import Stack, stack
from tests.support import stand_in

if TYPE_CHECKING:
    from build_hooks.queues.model import Patch

RELEASE = "0.29.0"
MODULE = "def f(x):\n    y = x\n\n    return y\n\n\ndef g(x):\n    return 2 * x\n"
# It finds data by its own place, as vLLM's kernels find their tuned configurations.
TUNING = """\
import os

HERE = os.path.dirname(os.path.realpath(__file__))
FOUND = sorted(os.listdir(os.path.join(HERE, "configs")))
"""
FILES = {
    "vllm/__init__.py": "",
    "vllm/_version.py": f'__version__ = version = "{RELEASE}"\n',
    "vllm/models.py": MODULE,
    "vllm/engine/__init__.py": "",
    "vllm/engine/core.py": "RUNS = 0\n",
    "vllm/engine/configs/E=1.json": "{}\n",
    "vllm/engine/tuning.py": TUNING,
    "vllm/dos.py": "ONE = 1\r\nTWO = 2\r\n",
}
# What every shape below says: one line of one module.
CHANGED = MODULE.replace("return y", "return abs(y)")
STRICT = """\
--- a/vllm/models.py
+++ b/vllm/models.py
@@ -3,3 +3,3 @@
\x20
-    return y
+    return abs(y)
\x20
"""
HUNK = """\
@@ -1,7 +1,7 @@
 def f(x):
     y = x
\x20
-    return y
+    return abs(y)
\x20
\x20
 def g(x):
"""
PLAIN = f"--- a/vllm/models.py\n+++ b/vllm/models.py\n{HUNK}"
GIT = (
    "diff --git a/vllm/models.py b/vllm/models.py\nindex 9daeafb..3e75765 100644\n"
    + PLAIN.replace("@@\n", "@@ class Above:\n")
)
MAIL = f"""\
From 3e757650000000000000000000000000000000aa Mon Sep 17 00:00:00 2001
From: Ana Lopez <ana@example.org>
Date: Tue, 3 Nov 2026 12:00:00 +0000
Subject: [PATCH v2 3/7] models: never negative

It was negative for
negative numbers.

Signed-off-by: Ana Lopez <ana@example.org>
---
 vllm/models.py | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

{GIT}--\x20
2.50.1

"""
SHAPES: dict[str, str] = {
    "strict": STRICT,
    "diff -u": PLAIN,
    "git": GIT,
    "git without prefixes": GIT.replace("a/vllm", "vllm").replace("b/vllm", "vllm"),
    "git with other prefixes": GIT.replace("a/vllm", "i/vllm").replace("b/vllm", "w/vllm"),
    "git show": (
        f"commit {'3e' * 20}\nAuthor: Ana Lopez <ana@example.org>\n"
        f"Date:   Tue Nov 3 12:00:00 2026 +0000\n\n    never negative\n\n{GIT}"
    ),
    "git with a mode": GIT.replace("index", "old mode 100644\nnew mode 100755\nindex", 1),
    "mail": MAIL,
    "mail without its first line": MAIL.partition("\n")[2],
    "DEP-3": f"Description: never negative\n For good.\nForwarded: no\n---\n{PLAIN}",
    "Debian header, no rule": f"Subject: never negative\nAuthor: Ana\n\n{PLAIN}",
    "quilt": (
        "Never negative.\n\nIndex: vllm-0.29.0/vllm/models.py\n"
        + "=" * 67
        + "\n"
        + PLAIN.replace("a/", "vllm-0.29.0.orig/").replace("b/", "vllm-0.29.0/")
    ),
    "Subversion": (
        "Index: vllm/models.py\n"
        + "=" * 67
        + "\n"
        + PLAIN.replace("a/vllm/models.py", "vllm/models.py\t(revision 7)").replace(
            "b/vllm/models.py", "vllm/models.py\t(working copy)"
        )
    ),
    "Mercurial": (
        f"# HG changeset patch\n# User Ana\nnever negative\n\ndiff -r {'0' * 12} vllm/models.py\n"
        + PLAIN.replace("models.py\n", "models.py\tTue Nov 03 12:00:00 2026 +0000\n")
    ),
    "time stamps": PLAIN.replace("models.py\n", "models.py\t2026-11-03 12:00:00.1 +0000\n"),
    "time stamps behind a blank": PLAIN.replace("models.py\n", "models.py 2026-11-03 12:00:00\n"),
    "diff -r": f"diff -ruN old/vllm/models.py new/vllm/models.py\n{PLAIN}",
    "beside its copy": PLAIN.replace("a/vllm/models.py", "vllm/models.py.orig").replace("b/", ""),
    "absolute": PLAIN.replace("a/", "/usr/lib/python3/site-packages/").replace("b/", "/srv/it/"),
    "deep": PLAIN.replace("a/", "x/y/z/").replace("b/", "x/y/z/"),
    "in the package": PLAIN.replace("a/vllm/", "a/").replace("b/vllm/", "b/"),
    "in the package, no prefix": PLAIN.replace("a/vllm/", "").replace("b/vllm/", ""),
    "a name of git's that is quoted": PLAIN.replace("a/vllm/models.py", '"a/vllm/mod\\145ls.py"'),
    "CR LF": PLAIN.replace("\n", "\r\n"),
    "CR LF in the hunks": PLAIN[: PLAIN.index("@@")] + HUNK.replace("\n", "\r\n"),
    "context that the header does not count": PLAIN.replace("1,7", "1,6"),
    "stripped blanks": PLAIN.replace("\n \n", "\n\n"),
    "no line end": PLAIN[:-1],
    "blank lines cut off": (
        f"{PLAIN[: PLAIN.index('@@')]}@@ -2,5 +2,5 @@\n     y = x\n \n-    return y\n"
        "+    return abs(y)\n"
    ),
    "blanks behind an added line": PLAIN.replace("abs(y)\n", "abs(y) \t\n"),
    "two parts of one file": (
        PLAIN.replace("abs(y)", "abs(1)") + PLAIN.replace("return y", "return abs(1)")
    ),
    "less context behind": PLAIN.replace("1,7", "1,5").removesuffix(" \n def g(x):\n"),
    "no context": PLAIN[: PLAIN.index("@@")] + "@@ -4 +4 @@\n-    return y\n+    return abs(y)\n",
    "at another line": PLAIN.replace("-1,7 +1,7", "-21,7 +21,7"),
}


def added(*names: str, line: str = "x") -> str:
    """Write a diff that adds files of one line."""
    return "".join(f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{line}\n" for name in names)


# What the overlay has beside a configuration that is added.
BESIDE = {path: FILES[path] for path in ("vllm/engine/configs/E=1.json", "vllm/engine/tuning.py")}


@dataclasses.dataclass
class Importer:
    """A project whose own queue is empty, with the wheel of the release, and queues beside it."""

    root: Path
    wheel: Path
    # The queue that patches are imported to.
    directory: Path

    @classmethod
    def make(cls, root: Path, **files: str) -> Importer:
        """Write the release; files are named by their modules."""
        more = {f"vllm/{name}.py": text for name, text in files.items()}
        wheel = stand_in.write_wheel(root / "wheels", RELEASE, files=FILES | more)
        series = f'releases = ["0.28.0", "{RELEASE}"]\nrevision = 1\npatches = []\n'
        stand_in.write(root / "overlay", {"series.toml": series})
        return cls(root, wheel, root / "acme")

    def command(self, name: str, *arguments: str, queue: str = "acme") -> int:
        """Run a maintainer's command."""
        place = ["--queue", str(self.root / queue), "--wheels", str(self.root / "wheels")]
        return cli.main([name, *place, *arguments], Project(self.root))

    def run(self, *sources: Path | str, queue: str = "acme", **more: object) -> int:
        """Import sources; ``--fuzz`` is ``fuzz=True``."""
        options = ["--release", str(more.pop("release", RELEASE))]
        for name, value in more.items():
            flag = f"--{name.replace('_', '-')}"
            options += [flag] if value is True else [flag, str(value)]
        return self.command("import", *options, *map(str, sources), queue=queue)

    def source(self, text: str | bytes, name: str = "x.patch") -> Path:
        """Write a source."""
        return stand_in.write(self.root / "in", {name: text}) / name

    def bring(self, text: str | bytes, **more: object) -> int:
        """Import a text."""
        return self.run(self.source(text), **more)

    def stack(self, queue: str = "acme") -> Stack:
        return stack(self.root / "overlay", [self.root / queue])

    @property
    def patches(self) -> tuple[Patch, ...]:
        return self.stack().patches

    def variants(self, queue: str = "acme") -> dict[str, str]:
        """Return the diff of each patch."""
        root = self.root / queue / "patches"
        return {p.parent.name: p.read_text() for p in sorted(root.glob(f"*/{RELEASE}.patch"))}

    def overlay(self) -> Overlay:
        """Apply the queues, as a build does."""
        return assemble(self.stack(), from_wheel(self.wheel))

    def served(self) -> dict[str, str]:
        """Return what the overlay brings, without the notice at a module's end."""
        files = self.overlay().files
        return {f.path: f.served.decode().partition("\n# Changed by")[0] for f in files}

    def files(self) -> dict[Path, bytes]:
        """Return every file of the queue."""
        return {p: p.read_bytes() for p in self.directory.rglob("*") if p.is_file()}
