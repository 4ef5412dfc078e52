"""Checks of the interpreter: whether it, and those that it starts, serve the overlay's modules.

Each function makes one check, or yields those that apply.
"""

from __future__ import annotations

import ast
import os
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import vllm_nemo
from vllm_nemo._overlay.doctor.report import FAIL, OK, WARN, Check
from vllm_nemo._overlay.errors import OverlayError
from vllm_nemo._overlay.finder import is_switched_on
from vllm_nemo._overlay.installed import copies
from vllm_nemo._overlay.loaded import half_patched, stray_modules
from vllm_nemo._overlay.manifest import PACKAGE
from vllm_nemo._overlay.refusal import Refusal
from vllm_nemo._overlay.stock import stock_file
from vllm_nemo._overlay.switches import OVERLAY, PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.machinery import ModuleSpec

    from vllm_nemo._overlay.manifest import Manifest, Module

# The directory that holds ``vllm_nemo``, and the file there that activates it.
_PARENT = PACKAGE.parent
_START_FILE = _PARENT / "vllm_nemo.pth"
# Where there is one, even an empty one, Python 3.15 and newer ignore that file's line (PEP 829).
_INSTEAD = _START_FILE.with_suffix(".start")
# The entry point by which vLLM finds the guard: group, name and value.
_GUARD = ("vllm.general_plugins", "vllm_nemo", "vllm_nemo._overlay.guard:check")
# Seconds for the start of an interpreter.
_START_TIMEOUT = 60

# What a new interpreter of this environment is like before it runs anything of its own. It imports
# nothing, since the current directory is on its sys.path.
_PROBE = """\
import sys
active = any(getattr(f, "__module__", None) == "vllm_nemo" for f in sys.meta_path)
early = sorted(m for m in sys.modules if m == "vllm" or m.startswith("vllm."))
found = getattr(sys.modules.get("vllm_nemo"), "__file__", None)
print(ascii({"active": active, "early": early, "file": found}))
"""


def interpreter() -> Check:
    """Name this interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("interpreter", OK, f"{sys.executable} (Python {version})")


def switch() -> Check:
    """Check that the overlay is not switched off."""
    try:
        on = is_switched_on()
    except OverlayError as error:
        return Check("switch", FAIL, str(error))
    if on:
        return Check("switch", OK, f"{OVERLAY} leaves the overlay on")
    detail = f"{OVERLAY}=off: this environment runs stock vLLM; unset it to run the overlay"
    return Check("switch", FAIL, detail)


def this_process() -> Check:
    """Check that this process has the overlay's finder."""
    if not vllm_nemo.is_active():
        return Check(
            "this process",
            FAIL,
            "the overlay's finder is not in sys.meta_path: something has removed it",
        )
    before = []
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) == "vllm_nemo":
            break
        before.append(_name(finder))
    detail = f"active; finders asked before it: {', '.join(before) or 'none'}"
    return Check("this process", OK, detail)


def new_process(manifest: Manifest) -> Iterator[Check]:
    """Start an interpreter as this one was started, as workers are, and ask whether it is active.

    Args:
        manifest: The overlay's manifest.

    Yields:
        One check, and another one if that process imports vLLM before it runs anything.
    """
    switches = {
        "-I": sys.flags.isolated,
        "-E": sys.flags.ignore_environment,
        "-s": sys.flags.no_user_site,
        "-S": sys.flags.no_site,
    }
    command = [sys.executable, *(flag for flag, is_set in switches.items() if is_set)]
    try:
        process = subprocess.run(
            [*command, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT,
            check=True,
        )
        # The last line, because a .pth file of another package may print something.
        answer = ast.literal_eval(process.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, SyntaxError, IndexError) as error:
        yield Check("new process", FAIL, f"{' '.join(command)} could not be asked: {error}")
        return
    if not answer["active"]:
        yield Check("new process", FAIL, f"not active in a new interpreter: {_why_not(manifest)}")
    elif Path(answer["file"]).parent != PACKAGE:
        detail = f"another vllm-nemo is active in a new interpreter: {answer['file']}"
        yield Check("new process", FAIL, detail)
    else:
        yield Check("new process", OK, "active in a new interpreter before it runs anything")
    if answer["early"]:
        yield Check(
            "early imports",
            FAIL,
            f"a .pth file or sitecustomize imports vLLM at start-up: {', '.join(answer['early'])}; "
            "it must `import vllm_nemo` first",
        )


def _why_not(manifest: Manifest) -> str:
    repair = "`import vllm_nemo` before vLLM activates it in a process"
    if sys.flags.no_site:
        return f"-S skips site, and with it every .pth file; {repair}"
    if not _START_FILE.exists():
        return f"vllm_nemo.pth is missing. {manifest.repair}"
    directories = {os.path.realpath(directory) for directory in _site_directories()}
    if os.path.realpath(_PARENT) not in directories:
        return (
            f"{_PARENT} is on sys.path (PYTHONPATH, or `pip install --target`) but is no site "
            f"directory, so its .pth files are not read; {repair}, or install vllm-nemo into the "
            "environment"
        )
    if _INSTEAD.exists():
        return _instead()
    return f"vllm_nemo.pth was not processed; {repair}"


def _instead() -> str:
    return f"from Python 3.15 on it takes the place of vllm_nemo.pth: remove {_INSTEAD}"


def _site_directories() -> list[str]:
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *user]


def start_files(manifest: Manifest, damage: Mapping[str, str]) -> Check:
    """Check the file that activates the overlay when an interpreter starts.

    Args:
        manifest: The overlay's manifest.
        damage: The state of each file of the overlay that is not as it was built.
    """
    name = _START_FILE.name
    if name in damage:
        detail = f"{name} is {damage[name]} in {_PARENT}. {manifest.repair}"
        return Check("start files", FAIL, detail)
    if os.path.lexists(_INSTEAD):
        return Check("start files", FAIL, _instead())
    return Check("start files", OK, f"{name} in {_PARENT}")


def loaded_modules(manifest: Manifest) -> Iterator[Check]:
    """Check that this process has loaded no patched module from elsewhere.

    Args:
        manifest: The overlay's manifest.
    """
    strays = stray_modules(manifest)
    if strays:
        yield Check("loaded modules", FAIL, str(half_patched(strays)))


def imports(manifest: Manifest, directory: Path) -> Check:
    """Ask this process's finders, in their order, where each patched module would come from.

    Args:
        manifest: The overlay's manifest.
        directory: The directory of the ``vllm`` package.
    """
    wrong = []
    for name, module in manifest.modules.items():
        spec, finder = _resolve(manifest, module, directory)
        if spec is not None and isinstance(spec.loader, Refusal):
            return Check("imports", FAIL, spec.loader.reason)
        origin = None if spec is None else spec.origin
        if origin != str(manifest.served_file(module)):
            wrong.append(f"{name} would come from {origin} (found by {finder})")
    if wrong:
        return Check("imports", FAIL, "\n".join(wrong))
    return Check("imports", OK, f"{len(manifest.modules)} modules would be the overlay's")


def _resolve(manifest: Manifest, module: Module, directory: Path) -> tuple[ModuleSpec | None, str]:
    """Return the spec that a module would have, and the name of the finder that says so."""
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
            return spec, _name(finder)
    return None, "no finder"


def _name(finder: object) -> str:
    return getattr(finder, "__name__", type(finder).__name__)


def guard(manifest: Manifest) -> Check:
    """Check that vLLM will call the guard in every process that it starts.

    Args:
        manifest: The overlay's manifest.
    """
    group, name, value = _GUARD
    found = [point for point in metadata.entry_points(group=group) if point.name == name]
    own = [point for point in found if point.value == value]
    if not own:
        return Check(
            "guard",
            FAIL,
            f"no entry point {name} = {value} in {group}: vLLM will not check its processes. "
            f"{manifest.repair}",
        )
    try:
        for point in own:
            point.load()
    except Exception as error:  # noqa: BLE001 (vLLM logs any, and goes on without the guard)
        return Check(
            "guard",
            FAIL,
            f"vLLM cannot load {value}, and goes on without it: {error}\n{manifest.repair}",
        )
    plugins = os.environ.get(PLUGINS)
    if plugins is not None and name not in plugins.split(","):
        detail = f"{PLUGINS}={plugins!r} keeps vLLM from calling it; add {name} to the list"
        return Check("guard", FAIL, detail)
    return Check("guard", OK, f"vLLM calls {value} in every process that it starts")


def risks() -> Iterator[Check]:
    """Warn of what could make another process find another vLLM or overlay, or none."""
    for name in ("vllm", "vllm_nemo"):
        found = list(copies(name))
        if len(found) > 1:
            yield Check(
                "copies",
                WARN,
                f"{name} is on sys.path more than once, and the order decides: "
                + ", ".join(map(str, found)),
            )
    user = site.getusersitepackages()
    if os.path.realpath(_PARENT) == os.path.realpath(user):
        yield Check(
            "user site",
            WARN,
            f"vllm-nemo is in the user's site directory {user}: `python -s`, `python -I` and other "
            "users do not see it",
        )
