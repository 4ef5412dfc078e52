"""Whether this interpreter runs the overlay, why not, and what could take it away."""

from __future__ import annotations

import ast
import hashlib
import os
import site
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vllm_nemo
from vllm_nemo._overlay import api, files, record, served
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.finder import half_patched, is_switched_on, stray_modules
from vllm_nemo._overlay.installed import Installed, release_of
from vllm_nemo._overlay.manifest import PACKAGE, load_manifest
from vllm_nemo._overlay.stock import check_stock, stock_file
from vllm_nemo._overlay.switches import OVERLAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_nemo._overlay.manifest import Manifest, Module, Patch
    from vllm_nemo._overlay.record import Recorded
    from vllm_nemo._overlay.served import ModuleState

OK = "ok"
WARN = "warn"
FAIL = "fail"

START_FILES = {"vllm_nemo.pth": "import vllm_nemo\n", "vllm_nemo.start": "vllm_nemo:activate\n"}
GUARD = ("vllm.general_plugins", "vllm_nemo", "vllm_nemo._overlay.guard:check")

# How many files a row names.
_FILES_SHOWN = 8

# What a new interpreter of this environment is like before it runs anything of its own. It imports
# nothing, since the current directory is on its sys.path.
_PROBE = """\
import sys
active = any(getattr(f, "__module__", None) == "vllm_nemo" for f in sys.meta_path)
early = sorted(m for m in sys.modules if m == "vllm" or m.startswith("vllm."))
found = getattr(sys.modules.get("vllm_nemo"), "__file__", None)
print(ascii({"active": active, "early": early, "file": found}))
"""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: it holds (ok), does not (fail), or could be lost (warn)."""

    name: str
    state: str
    detail: str


@dataclass(frozen=True)
class PatchState:
    """A patch, whether this interpreter would run vLLM with it, and how it is switched."""

    patch: Patch
    state: str
    switch: str


@dataclass
class Report:
    """Everything that the doctor has to say about this interpreter."""

    checks: list[Check] = field(default_factory=list)
    patches: tuple[PatchState, ...] = ()
    manifest: Manifest | None = None
    directory: Path | None = None
    installed: Installed | None = None
    active: bool = False

    @property
    def holds(self) -> bool:
        """Whether every check holds; what could only be lost does not count."""
        return all(check.state != FAIL for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        manifest = self.manifest
        return {
            "holds": self.holds,
            "active": self.active,
            "python": sys.executable,
            "overlay": manifest and manifest.overlay,
            "manifest": manifest and _sha256(manifest.directory / "manifest.json"),
            "base": manifest
            and {
                "distribution": manifest.base.distribution,
                "version": manifest.base.version,
                "locked": manifest.base.locked,
            },
            "vllm": self.installed
            and {
                "directory": str(self.directory),
                "version": self.installed.version,
                "distributions": [f"{name} {version}" for name, version in self.installed.owners],
            },
            "checks": [vars(check) for check in self.checks],
            "patches": [
                {"id": item.patch.id, "state": item.state, "switch": item.switch}
                for item in self.patches
            ],
        }


def examine() -> Report:
    """Look at this interpreter and its environment. Imports neither vLLM nor torch."""
    report = Report()
    add = report.checks.append
    version = ".".join(map(str, sys.version_info[:3]))
    add(Check("interpreter", OK, f"{sys.executable} (Python {version})"))
    try:
        manifest = report.manifest = load_manifest()
    except OverlayError as error:
        add(Check("overlay", FAIL, str(error)))
        return report
    add(_overlay(manifest))
    switch = _switch()
    add(switch)
    process = _process()
    add(process)
    report.checks += _start_up()
    add(_start_files())

    base = _vllm(report, manifest)
    add(base)
    if report.directory is not None and report.installed is not None:
        report.checks += _release(manifest, report.installed, base)
        report.checks += _files(manifest, report.directory, report.installed)
    states = served.module_states(manifest, report.directory)
    add(_served(states))
    report.checks += _loaded(manifest)
    report.active = OK == switch.state == process.state == base.state
    if report.active and report.directory is not None:
        add(_imports(manifest, report.directory))
    report.checks += _guard()
    report.checks += _risks()
    report.patches = tuple(
        PatchState(patch, _patch_state(patch, states, served=report.active), _switch_of(patch))
        for patch in manifest.patches
    )
    return report


def _overlay(manifest: Manifest) -> Check:
    base = manifest.base
    detail = (
        f"vllm-nemo {manifest.overlay} for {base.distribution} {base.version}: "
        f"{len(manifest.patches)} patches, {len(manifest.modules)} modules"
    )
    if manifest.data:
        detail += f", data files: {len(manifest.data)}"
    if base.locked:
        return Check("overlay", OK, detail)
    return Check("overlay", WARN, f"{detail}; built from a base that no lock covers")


def _switch() -> Check:
    try:
        on = is_switched_on()
    except OverlayError as error:
        return Check("switch", FAIL, str(error))
    if on:
        return Check("switch", OK, f"{OVERLAY} leaves the overlay on")
    return Check("switch", FAIL, f"{OVERLAY}=off: this environment runs stock vLLM")


def _process() -> Check:
    if not vllm_nemo.is_active():
        return Check("this process", FAIL, "the overlay's finder is not in sys.meta_path")
    ahead = []
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) == "vllm_nemo":
            break
        ahead.append(getattr(finder, "__name__", type(finder).__name__))
    return Check("this process", OK, f"active; finders asked before it: {', '.join(ahead) or '-'}")


def _start_up() -> Iterator[Check]:
    """Ask a new interpreter, started the way this one was: workers are started so, too."""
    switches = {
        "-I": sys.flags.isolated,
        "-E": sys.flags.ignore_environment,
        "-s": sys.flags.no_user_site,
        "-S": sys.flags.no_site,
    }
    command = [sys.executable, *(flag for flag, is_set in switches.items() if is_set)]
    try:
        process = subprocess.run(
            [*command, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
        )
        # A .pth of somebody else may print.
        answer = ast.literal_eval(process.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, SyntaxError, IndexError) as error:
        yield Check("new process", FAIL, f"{' '.join(command)} could not be asked: {error}")
        return
    if not answer["active"]:
        yield Check("new process", FAIL, f"not active in a new interpreter: {_why_not()}")
    elif Path(answer["file"]).parent != PACKAGE:
        yield Check("new process", FAIL, f"another vllm-nemo is active there: {answer['file']}")
    else:
        yield Check("new process", OK, "active in a new interpreter before it runs anything")
    if answer["early"]:
        yield Check(
            "early imports",
            FAIL,
            f"a .pth file or sitecustomize imports vLLM at start-up: {', '.join(answer['early'])}; "
            "it must `import vllm_nemo` first",
        )


def _why_not() -> str:
    repair = "`import vllm_nemo` before vLLM activates it in a process"
    if sys.flags.no_site:
        return f"-S skips site, and with it every .pth file; {repair}"
    if not (PACKAGE.parent / "vllm_nemo.pth").exists():
        return "vllm_nemo.pth is missing; reinstall vllm-nemo"
    directories = {os.path.realpath(directory) for directory in _site_directories()}
    if os.path.realpath(PACKAGE.parent) not in directories:
        return (
            f"{PACKAGE.parent} is on sys.path (PYTHONPATH, or `pip install --target`) but is no "
            f"site directory, so its .pth files are not read; {repair}, or install vllm-nemo "
            "into the environment"
        )
    return f"vllm_nemo.pth was not processed; {repair}"


def _site_directories() -> list[str]:
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *user]


def _start_files() -> Check:
    wrong = []
    for name, line in START_FILES.items():
        state = files.file_state(PACKAGE.parent / name, hashlib.sha256(line.encode()).hexdigest())
        if state != OK:
            wrong.append(f"{name} is {state}")
    if wrong:
        return Check("start files", FAIL, f"{'; '.join(wrong)} in {PACKAGE.parent}")
    return Check("start files", OK, f"{' and '.join(START_FILES)} in {PACKAGE.parent}")


def _vllm(report: Report, manifest: Manifest) -> Check:
    try:
        report.directory = api.vllm_directory()
    except OverlayError as error:
        return Check("vllm", FAIL, str(error))
    if report.directory is None:
        return Check(
            "vllm",
            FAIL,
            f"vLLM is not installed for this interpreter; the overlay is for "
            f"{manifest.base.distribution} {manifest.base.version}",
        )
    report.installed = Installed(report.directory)
    try:
        check_stock(manifest, report.directory)
    except OverlayError as error:
        return Check("vllm", FAIL, str(error))
    return Check(
        "vllm",
        OK,
        f"{report.installed} at {report.directory}, with the contents expected of "
        f"{manifest.base.version}",
    )


def _release(manifest: Manifest, installed: Installed, base: Check) -> Iterator[Check]:
    """Hold the release of vLLM against the overlay's: what is patched may be the same in both."""
    expected = release_of(manifest.base.version)
    found = installed.release
    if found is None or expected is None:
        return
    if found == expected:
        yield Check("release", OK, f"vLLM {found}, which the overlay is for")
        return
    yield Check(
        "release",
        WARN if base.state == OK else FAIL,
        f"the overlay is for vLLM {expected}, and {found} is installed"
        + ("; every file that is replaced is the same in both" if base.state == OK else "")
        + f'. The overlay for it: pip install "vllm-nemo=={found}.*"',
    )


def _files(manifest: Manifest, directory: Path, installed: Installed) -> Iterator[Check]:
    """Tell whether somebody edits vLLM's files, and how far that reaches."""
    stock = {(module.path, module.stock) for module in manifest.modules.values() if module.stock}
    recorded = record.compare(directory, installed.distributions, stock)
    names = [f"{name} {version}" for name, version in installed.owners]
    if len(names) > 1:
        yield _owners(directory, names, recorded)
    if not recorded.files:
        yield Check(
            "vllm files", OK, "no RECORD has hashes of them: an editable or hand-made install"
        )
    elif recorded.edited:
        yield Check(
            "vllm files",
            FAIL,
            f"{len(recorded.edited)} of {recorded.files} source files are not those that were "
            f"installed; something has edited them: {_some(recorded.edited)}. A fresh copy of "
            f"{' or '.join(names)} has them as they were",
        )
    else:
        yield Check("vllm files", OK, f"{recorded.files} source files as they were installed")
    locks = record.locks(directory)
    if locks:
        yield _patcher(locks, recorded.edited)
    shared = record.shared(directory, recorded.edited)
    if shared:
        yield _shared(directory, shared, *installed.owners[0])


def _owners(directory: Path, names: list[str], recorded: Recorded) -> Check:
    whose = [name for name, wrong in zip(names, recorded.differing, strict=True) if not wrong]
    detail = f"{' and '.join(names)} both own {directory}"
    if recorded.files and not whose:
        return Check(
            "owners", FAIL, f"{detail}, and its files are a mixture; remove both, install one"
        )
    if recorded.files and len(whose) < len(names):
        detail += f", whose files are those of {' and '.join(whose)}"
    return Check(
        "owners",
        WARN,
        f"{detail}: whichever is installed or removed next changes the files of the other",
    )


def _patcher(locks: tuple[str, ...], edited: tuple[str, ...]) -> Check:
    """Say what lock files mean: NeMo-RL's own patcher takes one for each file it rewrites."""
    patched = [lock for lock in locks if lock.removesuffix(record.LOCK) in edited]
    if patched:
        return Check(
            "run-time patcher",
            FAIL,
            f"NeMo-RL's patches.py has rewritten files here and would again: {_some(patched)}. "
            "Let NeMo-RL import vllm_nemo.nemo_rl in its place, and reinstall vLLM",
        )
    return Check(
        "run-time patcher",
        WARN,
        f"NeMo-RL's patches.py has run here: {_some(locks)}. The files beside them are as they "
        "were installed. If it runs no more, delete the locks",
    )


def _shared(directory: Path, shared: tuple[str, ...], name: str, version: str) -> Check:
    cached = record.in_uv_cache(directory, shared[0])
    where = f"uv's cache ({cached})" if cached else "a package cache or another environment"
    return Check(
        "shared files",
        FAIL,
        f"{len(shared)} edited files are links to files that others have too: {_some(shared)}. "
        f"The edit is also in {where}: every environment that has its vLLM from there runs it, "
        "and a reinstallation brings it back. Empty the cache first, then reinstall in each:\n"
        f"  uv cache clean {name}\n"
        f'  uv pip install --reinstall --no-deps "{name}=={version}"',
    )


def _some(paths: Sequence[str]) -> str:
    more = len(paths) - _FILES_SHOWN
    return ", ".join(paths[:_FILES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _served(states: tuple[ModuleState, ...]) -> Check:
    wrong = [f"{state.module.path} is {state.served}" for state in states if state.served != OK]
    if wrong:
        return Check("served files", FAIL, f"{'; '.join(wrong)}; reinstall vllm-nemo")
    return Check("served files", OK, f"{len(states)} as they were built")


def _loaded(manifest: Manifest) -> Iterator[Check]:
    strays = stray_modules(manifest)
    if strays:
        yield Check("loaded modules", FAIL, str(half_patched(strays)))


def _imports(manifest: Manifest, directory: Path) -> Check:
    """Ask this process's finders, in their order, where each patched module would come from."""
    wrong = []
    for name, module in manifest.modules.items():
        try:
            origin, finder = _resolve(manifest, module, directory)
        except OverlayError as error:
            return Check("imports", FAIL, str(error))
        if origin != str(manifest.served_file(module)):
            wrong.append(f"{name} would come from {origin} (found by {finder})")
    if wrong:
        return Check("imports", FAIL, "\n".join(wrong))
    return Check("imports", OK, f"{len(manifest.modules)} modules would be the overlay's")


def _resolve(manifest: Manifest, module: Module, directory: Path) -> tuple[str | None, str]:
    parent_name = module.name.rpartition(".")[0]
    parent = manifest.modules.get(parent_name)
    path = None
    if parent is not None and parent.stock is None:
        path = [str(manifest.served_file(parent).parent)]
    elif parent_name:
        file = stock_file(directory, module)
        path = [str(file.parent.parent if module.package else file.parent)]
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(module.name, path, None) if find_spec else None
        if spec is not None:
            return spec.origin, getattr(finder, "__name__", type(finder).__name__)
    return None, "nobody"


def _guard() -> Iterator[Check]:
    group, name, value = GUARD
    found = [point.value for point in metadata.entry_points(group=group) if point.name == name]
    if value not in found:
        yield Check(
            "guard",
            FAIL,
            f"no entry point {name} = {value} in {group}: vLLM will not check its processes; "
            "reinstall vllm-nemo",
        )
        return
    plugins = os.environ.get("VLLM_PLUGINS")
    if plugins is not None and name not in plugins.split(","):
        yield Check(
            "guard",
            FAIL,
            f"VLLM_PLUGINS={plugins!r} keeps vLLM from calling it; add {name} to the list",
        )
        return
    yield Check("guard", OK, f"vLLM calls {value} in every process that it starts")


def _risks() -> Iterator[Check]:
    for name in ("vllm", "vllm_nemo"):
        copies = list(_copies(name))
        if len(copies) > 1:
            yield Check(
                "copies",
                WARN,
                f"{name} is on sys.path more than once, and the order decides: "
                + ", ".join(map(str, copies)),
            )
    user = site.getusersitepackages()
    if os.path.realpath(PACKAGE.parent) == os.path.realpath(user):
        yield Check(
            "user site",
            WARN,
            f"vllm-nemo is in the user's site directory {user}: `python -s`, `python -I` and other "
            "users do not see it",
        )


def _copies(name: str) -> Iterator[Path]:
    seen = set()
    for entry in sys.path:
        package = Path(entry or Path.cwd(), name)
        real = os.path.realpath(package)
        if real not in seen and (package / "__init__.py").is_file():
            seen.add(real)
            yield package


def _patch_state(patch: Patch, states: tuple[ModuleState, ...], *, served: bool) -> str:
    if patch.outcome == "not-needed":
        return "not needed"
    if patch.outcome == "present":
        return "in vLLM itself" if served else "UNKNOWN"
    wrong = [state for state in states if patch.id in state.module.patches and not state.holds]
    return "served" if served and not wrong else "NOT SERVED"


def _switch_of(patch: Patch) -> str:
    if patch.switch == "always":
        return patch.switch
    value = os.environ.get(patch.switch)
    return f"{patch.switch} (not set)" if value is None else f"{patch.switch}={value}"
