"""The command: it measures sections, prints their tables and writes the page."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from harness import tools
from harness.environments import RELEASES
from harness.tools import BUILD, ROOT

SECTIONS = ("builds", "starts", "generation")
PAGE = ROOT / "docs" / "performance.md"
_DESCRIPTION = """\
Measures what the overlay costs, and prints a table of each section. Makes two environments of one
vLLM release below build/bench-envs, one with the overlay, and fetches the wheels of all supported
releases (2 GB), unless they are there. pyperf's files stay in build/benchmarks.
"""


def main() -> int:
    """Read the arguments, measure and return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=_DESCRIPTION)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--vllm", choices=RELEASES, default=RELEASES[-1], metavar="RELEASE")
    parser.add_argument("--quick", action="store_true", help="only to see that everything works")
    parser.add_argument("--read", action="store_true", help="take the files of the last run")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if options.write and (options.sections or options.quick):
        parser.error("the page is made from all sections, measured in full")
    interpreter = tools.interpreter("benchmark")
    if Path(sys.prefix) != interpreter.parent.parent:
        return subprocess.run([interpreter, *sys.argv], check=False).returncode
    return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    # They import pyperf.
    from benchmarks import builds, generation, page, starts, subject

    measures = {
        "builds": builds.measure,
        "starts": starts.measure,
        "generation": generation.measure,
    }
    results = BUILD / ("benchmarks-quick" if options.quick else "benchmarks")
    chosen = options.sections or SECTIONS
    try:
        if not options.read:
            measured = subject.make(options.vllm, quick=options.quick)
            for name in chosen:
                print(f"\n{name}", file=sys.stderr)
                shutil.rmtree(results / name, ignore_errors=True)
                measures[name](measured, results / name)
        for name in chosen:
            print(f"\n{name}\n\n{page.terminal(results / name)}")
        if options.write:
            text = page.fill(PAGE.read_text(encoding="utf-8"), page.tables(results, SECTIONS))
            PAGE.write_text(text, encoding="utf-8")
            print(f"\n{PAGE.relative_to(ROOT)}: written")
    except (OSError, RuntimeError, ValueError, subprocess.CalledProcessError) as error:
        print(f"benchmarks/run: error: {error}", file=sys.stderr)
        return 1
    return 0
