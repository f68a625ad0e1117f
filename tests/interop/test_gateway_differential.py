"""Servers of other projects answer through a gateway as directly, over both of its transports and in both eras."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge import HttpTransport, ServerConfig, StdioTransport
from bridge.client import Connection
from bridge.client.connection.list_methods import PROMPTS, RESOURCES, TEMPLATES
from bridge.errors import ServerRefusedError
from tests.interop.packages import fastmcp_python, npm_server
from tests.interop.test_reference_servers import HANDLERS
from tests.processes import ROOT, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_SECONDS = 120
METHOD_NOT_FOUND = -32601
HERE = Path(__file__).parent
OF_ONE_MESSAGE = {"_meta", "resultType", "ttlMs", "cacheScope"}


def command_of(name: str, tmp_path: Path) -> tuple[str, ...]:
    """Return the command of a server over stdio; skip the test if it cannot be installed."""
    if name == "official":
        return (sys.executable, str(HERE / "official_server.py"), "stdio")
    if name == "fastmcp":
        return (fastmcp_python(), str(HERE / "fastmcp_server.py"), "stdio")
    (tmp_path / "a.txt").write_text("inside")
    arguments = {"filesystem": str(tmp_path), "everything": "stdio"}
    return (*npm_server(name), *((arguments[name],) if name in arguments else ()))


@asynccontextmanager
async def directly(command: tuple[str, ...]) -> AsyncIterator[Connection]:
    """Connect to the server itself, in its era, by a client with the capabilities of a gateway."""
    transport = StdioTransport(command[0], args=command[1:], cwd=str(ROOT))
    async with Connection(ServerConfig(name="direct", transport=transport), handlers=HANDLERS) as connection:
        yield connection


@asynccontextmanager
async def through(kind: str, era: Any, command: tuple[str, ...]) -> AsyncIterator[Connection]:
    """Connect to the server behind ``bridge serve``."""
    words = ("-m", "bridge", "serve", "--transport", kind, *(("--port", "0") if kind == "http" else ()))
    if kind == "stdio":
        transport = StdioTransport(sys.executable, args=(*words, "--", *command), cwd=str(ROOT))
        async with Connection(ServerConfig(name="gateway", transport=transport, protocol=era)) as connection:
            yield connection
        return
    serving_http = serving(*words, "--", *command)
    server = await anyio.to_thread.run_sync(serving_http.__enter__)
    try:
        config = ServerConfig(name="gateway", transport=HttpTransport(f"{server.origin}/mcp"), protocol=era)
        async with Connection(config) as connection:
            yield connection
    finally:
        await anyio.to_thread.run_sync(serving_http.__exit__, None, None, None)


async def said(connection: Connection, method: str, params: Json) -> Any:
    """Return the result of a request without the members of a single message, or its error."""
    try:
        result = await connection.request(method, params)
    except ServerRefusedError as error:
        # A gateway has completions, also for servers that have none.
        return [] if method == "completion/complete" and error.code == METHOD_NOT_FOUND else error.code
    if method == "completion/complete":  # a gateway says whether there are more, and how many
        return result["completion"]["values"]
    return {key: value for key, value in result.items() if key not in OF_ONE_MESSAGE}


async def everything_of(connection: Connection) -> dict[str, Any]:
    """Return all lists of a server, and its responses to the requests that follow from them."""
    found: dict[str, Any] = {"tools": [_of_today(each) for each in (await connection.list_tools()).tools]}
    for method in (RESOURCES, TEMPLATES, PROMPTS):
        try:
            found[method.member] = (await connection.list_items(method)).items
        except ServerRefusedError:
            found[method.member] = []  # a gateway has all lists
    for each in found["resources"]:
        found[each["uri"]] = await said(connection, "resources/read", {"uri": each["uri"]})
    for each in found["prompts"]:
        arguments = [argument["name"] for argument in each.get("arguments", ())]
        params: Json = {"name": each["name"], "arguments": dict.fromkeys(arguments, "1")}
        found[f"prompt {each['name']}"] = await said(connection, "prompts/get", params)
        for argument in arguments:
            ref = {"type": "ref/prompt", "name": each["name"]}
            asked = {"ref": ref, "argument": {"name": argument, "value": ""}}
            found[f"complete {each['name']} {argument}"] = await said(connection, "completion/complete", asked)
    return found


def _of_today(tool: Json) -> Json:
    return {key: value for key, value in tool.items() if key != "execution"}  # of the former experimental tasks


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("kind", ["stdio", "http"])
@pytest.mark.parametrize("name", ["everything", "filesystem", "memory", "fastmcp", "official"])
async def test_a_server_answers_through_a_gateway_as_directly(name: str, kind: str, era: str, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        command = command_of(name, tmp_path)
        async with directly(command) as connection:
            expected = await everything_of(connection)
        async with through(kind, era, command) as connection:
            assert await everything_of(connection) == expected
    assert expected["tools"]
