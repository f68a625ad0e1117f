"""Fixtures of all tests, and the marks of slow ones."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent
SLOW = (
    "benchmarks/load/test_load.py",
    "benchmarks/test_benchmarks.py",
    "cli/test_config_targets.py",
    "cli/test_login.py",
    "cli/test_pin.py",
    "cli/test_rolling_restart.py",
    "cluster",
    "gateway/test_every_route.py",
    "gateway/test_fastmcp_client.py",
    "gateway/test_followed_lock_files.py",
    "gateway/test_serve_gateway.py",
    "gateway/test_traces.py",
    "image",
    "interop",
)
"""Folders whose tests take seconds each, because they start several processes, or programs of other projects."""

# Neither the time of an example is tested nor that of drawing one, which beside a load is over Hypothesis's limit.
settings.register_profile("all", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Tests that draw examples themselves use a multiple of this number. `make test-all` draws a hundred.
settings.register_profile("bridge", settings.get_profile("all"), max_examples=25)
settings.load_profile("bridge")


def pytest_configure() -> None:
    """Disable the garbage collector until tests are collected; let programs of tests receive SIGINT and SIGHUP.

    Background jobs of a shell ignore SIGINT, and programs under `nohup` SIGHUP. A pytest that tests start has no plugin
    of langchain, as this one: it warns on Python 3.14.
    """
    gc.disable()  # collection takes a quarter less time
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("PYTEST_ADDOPTS", "-p no:langsmith_plugin")


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio unless they choose otherwise."""
    return "asyncio"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import slow files when no slow tests are run."""
    if collection_path.is_relative_to(ROOT) and "not slow" in config.getoption("markexpr"):
        return collection_path.relative_to(ROOT).as_posix() in SLOW or None
    return None


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting modules and tests: each visit of all takes 0.4 seconds."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark slow tests, and group tests that share a server and a connection."""
    for item in items:
        path = str(item.path).removeprefix(f"{ROOT}{os.sep}").replace(os.sep, "/")  # `Path` takes a second for all
        spec = getattr(item, "callspec", None)
        route, config = (None, None) if spec is None else (spec.indices.get("route"), spec.indices.get("config"))
        if route is not None:
            item.add_marker(pytest.mark.xdist_group(f"{path} {route} {config}"))
        if path.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
