"""Calls of real servers, recorded directly and through a gateway, are the same field by field."""

from __future__ import annotations

import shutil
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ServerConfig, StdioTransport
from bridge.client import Connection
from bridge.errors import ServerRefusedError
from tests.interop.recorded_servers import SERVERS
from tests.interop.test_gateway_differential import OF_ONE_MESSAGE
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.interop.recorded_servers import RecordedServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_SECONDS = 240
LEAST_SERVERS = 25


def test_there_are_enough_servers() -> None:
    assert len(SERVERS) >= LEAST_SERVERS


@asynccontextmanager
async def connected(command: list[str], folder: Path, server: RecordedServer, era: Any) -> AsyncIterator[Connection]:
    """Connect to a server over stdio, after its folder was filled anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    server.prepare(folder)
    environment = {name: text.replace("{folder}", str(folder)) for name, text in server.environment.items()}
    environment["PYTHONPATH"] = str(ROOT)  # of the gateway
    transport = StdioTransport(command[0], args=tuple(command[1:]), cwd=str(folder), env=environment)
    async with Connection(ServerConfig(name="recorded", transport=transport, protocol=era)) as connection:
        yield connection


async def recorded(connection: Connection, server: RecordedServer, folder: Path) -> list[Any]:
    """Return the list of tools, and the result or error of each call, without the members of a single message."""
    found: list[Any] = [
        [
            {key: value for key, value in tool.items() if key != "execution"}
            for tool in (await connection.list_tools()).tools
        ]
    ]
    for name, arguments in server.calls(folder):
        try:
            result = await connection.request("tools/call", {"name": name, "arguments": arguments})
        except ServerRefusedError as error:
            found.append((name, error.code))
        else:
            found.append((name, {key: value for key, value in result.items() if key not in OF_ONE_MESSAGE}))
    return found


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("name", SERVERS)
async def test_calls_are_answered_through_a_gateway_as_directly(name: str, era: str, tmp_path: Path) -> None:
    server, folder = SERVERS[name], tmp_path / "folder"
    with anyio.fail_after(DEADLINE_SECONDS):
        command = server.command(folder)
        async with connected(command, folder, server, "auto") as connection:
            expected = await recorded(connection, server, folder)
        gateway = [sys.executable, "-m", "bridge", "serve", "--", *command]
        async with connected(gateway, folder, server, era) as connection:
            assert await recorded(connection, server, folder) == expected
    assert expected[0], "it lists no tool"
