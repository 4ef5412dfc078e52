"""The Dockerfile's defaults: the newest release, at the queue's revision."""

from __future__ import annotations

import re
from pathlib import Path

from build_hooks.project import Project
from build_hooks.queues.reader import load

ROOT = Path(__file__).parents[2]


def test_the_defaults_are_the_newest_overlay() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    before_the_first_stage, _, _ = dockerfile.partition("\nFROM ")
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", before_the_first_stage, re.MULTILINE))
    queue = load(Project(ROOT).queue)
    assert defaults["VLLM_RELEASE"] == str(queue.releases[-1])
    assert defaults["OVERLAY_REVISION"] == str(queue.revision)
    assert defaults["BASE_IMAGE"] == "vllm/vllm-openai:v${VLLM_RELEASE}"


def test_the_context_has_all_that_a_build_of_the_wheel_reads() -> None:
    """What the build stage copies is let through, and is what the wheel is made of."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    sources = {word for words in copied for word in words.split() if not word.startswith("dist/")}
    let_through = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert sources == let_through - {"dist/*.whl"}
    assert all((ROOT / name).exists() for name in sources)
