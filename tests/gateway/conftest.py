"""A gateway as a process between a server and the official client, with every route on both sides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests import forks
from tests.interop.counterpart import DEADLINE_SECONDS, MODERN, TOOLS, Route, connected, serving
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.interop.counterpart import Counterpart

CALLERS = [Route(transport, mode) for transport in ("stdio", "http") for mode in ("auto", "legacy")]
CALLERS += [Route("sse", "legacy")]
"""Routes from the official client to the gateway."""

SERVERS = [Route(transport, mode) for transport in ("stdio", "http") for mode in (MODERN, "legacy")]
SERVERS += [Route("sse", "legacy")]
"""Routes from the gateway to the server."""


def entry(server: Route, origin: str) -> dict[str, Any]:
    """Return the configuration of a server."""
    if server.transport == "sse":
        return {"type": "sse", "url": f"{origin}/sse"}
    if server.transport == "http":
        return {"type": "http", "url": f"{origin}/mcp", "protocol": server.mode}
    return forks.entry("-m", "bridge", "serve", TOOLS, cwd=str(ROOT), protocol=server.mode)


def write_config(path: Path, **servers: dict[str, Any]) -> str:
    """Write a configuration to a file; return its path."""
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The backend, with the scope of the connections."""
    return "asyncio"


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """A server over HTTP."""
    with serving() as origin:
        yield origin


@pytest.fixture(scope="module", params=SERVERS, ids=lambda server: f"from-{server}")
def config(request: pytest.FixtureRequest, origin: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A configuration with the server, by each route."""
    folder: Path = tmp_path_factory.mktemp("config")
    return write_config(folder / "mcp.json", served=entry(request.param, origin))


@pytest.fixture(scope="module")
def gateway_origin(config: str) -> Iterator[str]:
    """A gateway over HTTP."""
    with serving(target=config) as origin:
        yield origin


@pytest.fixture(scope="module", params=CALLERS, ids=lambda route: f"to-{route}")
def route(request: pytest.FixtureRequest) -> Route:
    """Each route to the gateway."""
    route: Route = request.param
    return route


@pytest.fixture(scope="module")
async def connection(route: Route, gateway_origin: str, config: str) -> AsyncIterator[Counterpart]:
    """The official client, connected to a gateway."""
    async with connected(route, gateway_origin, target=config) as counterpart:
        with anyio.fail_after(DEADLINE_SECONDS):
            # Calls that a client of another route cancelled count for some seconds, in which no other client is asked.
            while (await counterpart.client.call_tool("order", {})).is_error:
                pass
        yield counterpart


@pytest.fixture
def counterpart(connection: Counterpart) -> Counterpart:
    """The official client, connected, without the records of earlier tests."""
    connection.forget()
    return connection
