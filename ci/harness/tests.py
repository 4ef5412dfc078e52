"""Installs what the tests need and runs them: lint, types, then pytest against built wheels.

What needs two nodes is left out: that is ci/two-node. Arguments after `--` go to pytest; its
closing line is the last that is printed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness import environments, lint, tools
from harness.environments import DEFAULT, ENVIRONMENTS, RELEASES

if TYPE_CHECKING:
    from pathlib import Path

TWO_NODE = """\
Runs the tests that ci/test leaves out: one engine across two Ray nodes, in namespaces.

Needs Linux, root, util-linux and iproute2; takes some minutes a release. Arguments after `--` go
to pytest; its closing line is the last that is printed.
"""


def main() -> int:
    """Run what the command line asks for (``ci/test``); return the exit status."""
    parser = argparse.ArgumentParser(prog="ci/test", description=__doc__)
    parser.add_argument(
        "--vllm",
        action="append",
        metavar="RELEASE",
        help=f"run engine tests on this release (default: {', '.join(DEFAULT)})",
    )
    parser.add_argument("--all", action="store_true", help="run engine tests on every release")
    parser.add_argument("--quick", action="store_true", help="leave out every test that needs vLLM")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest")
    options = parser.parse_args()
    releases: list[str] = RELEASES if options.all else options.vllm or DEFAULT
    environments.check(parser, releases)

    python = tools.interpreter("lint", "test")
    lint.run_all(python)
    if options.quick:
        quick = ["tests/unit", "tests/activation", "tests/wheel"]
        _pytest(python, "--numprocesses", "2", *quick, *options.pytest)
        return 0
    # Asked for some releases, or all, those are meant; else the others are imported at least.
    others = [] if options.vllm else [r for r in RELEASES if r not in releases]
    _make([*releases, *others], python)
    named = [*_names(releases), *(f"--others={release}" for release in others)]
    # Two at a time, which two cores and 24 GB bear; tests/conftest.py groups tests that share
    # engines, and orders the groups: by itself, xdist takes those of the fewest tests last.
    groups = ["--dist", "loadgroup", "--no-loadscope-reorder"]
    _pytest(python, *named, "--numprocesses", "2", *groups, *options.pytest)
    return 0


def two_node() -> int:
    """Run the tests that need two nodes (``ci/two-node``); return the exit status."""
    parser = argparse.ArgumentParser(prog="ci/two-node", description=TWO_NODE)
    parser.add_argument(
        "--vllm",
        action="append",
        metavar="RELEASE",
        help=f"run on this release (default: {', '.join(DEFAULT)})",
    )
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest")
    options = parser.parse_args()
    releases: list[str] = options.vllm or DEFAULT
    environments.check(parser, releases)

    python = tools.interpreter("lint", "test")
    _make(releases, python)
    _pytest(python, "-m", "two_node", "tests/two_node", *_names(releases), *options.pytest)
    return 0


def _make(releases: list[str], python: Path) -> None:
    """Make the environments of releases, with the overlay in them."""
    for release in releases:
        environments.environment(release, python)
        environments.overlay(release, python)


def _names(releases: list[str]) -> list[str]:
    """Return the options of pytest that name environments.

    With "=": pytest would take a value that stands alone for a path, before it knows the option.
    """
    return [f"--envs={ENVIRONMENTS}", *(f"--vllm={release}" for release in releases)]


def _pytest(python: Path, *arguments: str) -> None:
    tools.run([python, "-m", "pytest", *arguments])
