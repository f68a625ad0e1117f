"""Fixtures of the tests of connections."""

from __future__ import annotations

import sys
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge.client import Connection, ServerConfig, StdioTransport
from tests import forks
from tests.client import reports as reporting
from tests.client.guard import Guard, guarded
from tests.client.proxy import Proxy
from tests.ports import free_port
from tests.processes import ROOT, ServerProcess, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager

    from tests.client.reports import Reports

SERVED = "tests/client/served.py:TOOLS"
DEADLINE_SECONDS = 60


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    """The reports of the servers."""
    async with reporting.listening() as listening:
        yield listening


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


def stdio_config(**settings: Any) -> ServerConfig:
    """A server of bridge as a child process."""
    transport = forked("-m", "bridge", "serve", SERVED)
    return replace(ServerConfig(name="served", transport=transport), **settings)


def forked(*arguments: str, **settings: Any) -> StdioTransport:
    """A child that is a fork which runs Python."""
    program, *rest = forks.command(*arguments)
    return StdioTransport(program, args=tuple(rest), **{"cwd": str(ROOT), **settings})


def python_config(code: str, *, env: dict[str, str] | None = None, **settings: Any) -> ServerConfig:
    """Return the command of a child that runs some Python code."""
    transport = StdioTransport(sys.executable, args=("-c", code), env=env or {})
    return replace(ServerConfig(name="child", transport=transport), **settings)


class RemoteServer:
    """A server of bridge over HTTP, which can be killed and started again at the same port."""

    def __init__(self, served: str = SERVED, *options: str) -> None:
        self._served = (served, *options)
        self._stack = ExitStack()
        self.process: ServerProcess | None = None
        self.port = free_port()

    async def start(self, transport: str = "http") -> None:
        """Start it, each time at the same port."""
        words = ("-m", "bridge", "serve", *self._served, "--transport", transport, "--port", str(self.port))
        self.process = await anyio.to_thread.run_sync(partial(self._stack.enter_context, serving(*words)))
        self.port = int(self.process.origin.rpartition(":")[2])

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.process is not None
        self.process.process.kill()
        self._stack.close()

    async def end(self) -> None:
        """End it gracefully by SIGTERM."""
        await anyio.to_thread.run_sync(self._stack.close)

    @property
    def url(self) -> str:
        """URL of streamable HTTP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sse_url(self) -> str:
        """URL of SSE."""
        return f"http://127.0.0.1:{self.port}/sse"


@pytest.fixture
async def remote() -> AsyncIterator[RemoteServer]:
    """A server of bridge over HTTP."""
    server = RemoteServer()
    await server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def steady() -> Iterator[RemoteServer]:
    """A server of bridge over HTTP, for tests that do not kill it."""
    server = RemoteServer()
    anyio.run(server.start)
    yield server
    server.kill()


@pytest.fixture
def guard() -> Iterator[Guard]:
    """A server of bridge over HTTP, behind a guard."""
    with guarded() as guard:
        yield guard


def proxied(server: RemoteServer) -> AbstractAsyncContextManager[Proxy]:
    """Run a proxy in front of a server."""
    return Proxy(server.port).running()


@asynccontextmanager
async def opened(config: ServerConfig, **options: Any) -> AsyncIterator[Connection]:
    """Open a connection; the block has a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(config, **options) as connection:
            yield connection
