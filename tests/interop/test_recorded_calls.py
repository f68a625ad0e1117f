"""Calls of real servers, recorded directly and through a gateway, are the same field by field."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge import ServerConfig, StdioTransport
from bridge.client import Connection
from bridge.errors import ServerRefusedError
from tests.interop.recorded_servers import SERVERS
from tests.interop.test_gateway_differential import OF_ONE_MESSAGE
from tests.interop.test_reference_servers import HANDLERS
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.interop.recorded_servers import RecordedServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_SECONDS = 240
LEAST_SERVERS = 25
LABEL = re.compile(r"^the server '[^']+', calling '[^']+': ")


def test_there_are_enough_servers() -> None:
    assert len(SERVERS) >= LEAST_SERVERS


def filled_anew(folder: Path, server: RecordedServer) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    server.prepare(folder)


@asynccontextmanager
async def connected(command: list[str], folder: Path, server: RecordedServer, era: Any) -> AsyncIterator[Connection]:
    """Connect to a server over stdio, after its folder was filled anew."""
    await anyio.to_thread.run_sync(filled_anew, folder, server)
    environment = {name: text.replace("{folder}", str(folder)) for name, text in server.environment.items()}
    environment["PYTHONPATH"] = str(ROOT)  # of the gateway
    transport = StdioTransport(command[0], args=tuple(command[1:]), cwd=str(folder), env=environment)
    config = ServerConfig(name="recorded", transport=transport, protocol=era)
    # A gateway declares the same capabilities; some servers list tools by them.
    async with Connection(config, handlers=HANDLERS) as connection:
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
            text = f"{error.message} ({error.code})"
            found.append((name, {"content": [{"type": "text", "text": text}], "isError": True}))
        else:
            found.append((name, {key: value for key, value in result.items() if key not in OF_ONE_MESSAGE}))
    return found


def without_label(found: list[Any]) -> list[Any]:
    """Return results without the words by which a gateway names the server in what it makes of a JSON-RPC error.

    A gateway answers it as a failed call, so that a model sees it.
    """
    for _, result in found[1:]:
        for block in result["content"] if result.get("isError") else ():
            block["text"] = LABEL.sub("", block["text"])
    return found


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("name", SERVERS)
async def test_calls_are_answered_through_a_gateway_as_directly(name: str, era: str, tmp_path: Path) -> None:
    server, folder = SERVERS[name], tmp_path / "folder"
    with anyio.fail_after(DEADLINE_SECONDS):
        command = server.command(folder)
        async with connected(command, folder, server, "auto") as connection:
            expected = await recorded(connection, server, folder)
        gateway = [sys.executable, "-m", "bridge", "serve", "--start-wait", "120", "--", *command]
        async with connected(gateway, folder, server, era) as connection:
            passed_on = await recorded(connection, server, folder)
    assert expected[0], "it lists no tool"
    assert without_label(passed_on) == expected
