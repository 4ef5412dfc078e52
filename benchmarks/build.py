"""What building overlays costs: by our own command and through pip, from every kind of base."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.context import Context, variables
from benchmarks.measure import Aim, Figure, Section, Table, alternate, timed

ROOT = Path(__file__).resolve().parent.parent
_READ = re.compile(r"^vllm (\S+): (\d+) files(?:, \d+ of them kept.*?)?(?:, (.+))?$", re.MULTILINE)


def measure(context: Context) -> Section:
    """Measure one overlay, and those of all releases."""
    builder = _Builder(context)
    release, all_releases = context.release, context.releases
    own, pip = "python -m build_hooks build", "pip wheel"
    one = alternate(
        {
            f"{own}, from a wheel on disk": builder.own([str(context.base())]),
            f"{own}, from an installed vLLM": builder.own(["installed"], installed=True),
        },
        context.rounds(45),
    )
    through = alternate(
        {
            f"{own}, from a wheel on disk": builder.own([str(context.base())]),
            f"{own}, from the index": builder.own([release], cold=True),
            f"{pip}, from a wheel on disk": builder.pip([str(context.base())]),
            f"{pip}, from an installed vLLM": builder.pip(["installed"], installed=True),
            f"{pip}, from the index": builder.pip([release], cold=True),
        },
        context.rounds(3),
        warm_up=0,
    )
    wheels = [str(context.base(name)) for name in all_releases]
    every = alternate({f"{own} --all, from wheels on disk": builder.own(wheels)}, context.rounds(5))
    slow = alternate(
        {
            f"{own} --all, from wheels on disk": builder.own(wheels),
            f"{own} --all, from the index": builder.own(list(all_releases), cold=True),
            f"{pip} for each, from wheels on disk": builder.pip(wheels),
        },
        1 if context.quick else 2,
        warm_up=0,
    )
    count = len(all_releases)
    first, everything = next(iter(one["s"])), next(iter(every["s"]))
    return Section(
        notes=[
            (
                f"One overlay is that of vLLM {release}. Times are of whole processes, the "
                "start of Python and the writing of the wheel included; `python -m "
                "build_hooks build` is run where the build's requirements are installed, `pip "
                "wheel --no-deps` with its own isolation. From the index means with an empty "
                "cache of ours, so that pip locates the release and its files are read in "
                "parts; pip's own cache is as it was."
            ),
        ],
        figures=[
            Figure("one overlay", "s", one["s"], Aim(first, "value", 0.5)),
            Figure("one overlay, whichever way", "s", through["s"]),
            Figure(
                f"overlays of all {count} releases", "s", every["s"], Aim(everything, "value", 4)
            ),
            Figure(f"overlays of all {count} releases, whichever way", "s", slow["s"]),
        ],
        tables=[
            Table(
                "What a build from the index reads of vLLM's wheel",
                ("release", "files", "read"),
                [builder.read[name] for name in all_releases if name in builder.read],
            )
        ],
    )


class _Builder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._count = itertools.count()
        self.read: dict[str, list[str]] = {}

    def own(
        self, bases: Sequence[str], *, installed: bool = False, cold: bool = False
    ) -> Callable[[], Mapping[str, float]]:
        command = [str(self._context.tools), "-m", "build_hooks", "build", *bases]
        return lambda: self._timed([(command, {})], "--out", installed=installed, cold=cold)

    def pip(
        self, bases: Sequence[str], *, installed: bool = False, cold: bool = False
    ) -> Callable[[], Mapping[str, float]]:
        command = [str(self._context.tools), "-m", "pip", "wheel", "--no-deps", "."]
        runs = [(command, {"NRL_VLLM_BASE": base}) for base in bases]
        return lambda: self._timed(runs, "--wheel-dir", installed=installed, cold=cold)

    def _timed(
        self,
        runs: Sequence[tuple[list[str], Mapping[str, str]]],
        option: str,
        *,
        installed: bool,
        cold: bool,
    ) -> Mapping[str, float]:
        out = self._context.fresh(f"build-{next(self._count)}")
        env = variables()
        if installed:
            env["VIRTUAL_ENV"] = str(self._context.plain)
        if cold:
            env["XDG_CACHE_HOME"] = str(out / "cache")
            # pip's cache is not what is measured; a user who has built before has it.
            env.setdefault("PIP_CACHE_DIR", str(self._pip_cache()))

        def work() -> str:
            said = ""
            for command, extra in runs:
                done = subprocess.run(
                    [*command, option, str(out / "dist")],
                    cwd=ROOT,
                    env={**env, **extra},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                said += done.stdout + done.stderr
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)} failed:\n{said[-4000:]}")
            return said

        said: list[str] = []
        taken = timed(lambda: said.append(work()))
        for release, files, how_much in _READ.findall(said[0]):
            self.read[release] = [release, files, how_much or "nothing: another release has them"]
        return taken

    def _pip_cache(self) -> Path:
        command = [str(self._context.tools), "-m", "pip", "cache", "dir"]
        return Path(subprocess.check_output(command, text=True).strip())
