"""Lists of tools: all pages, as they came, and those that do not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.client import HttpTransport, ServerConfig
from bridge.errors import ServerAnswerError, ServerRefusedError
from tests.client.conftest import opened, python_config

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer
    from tests.client.guard import Guard

pytestmark = pytest.mark.anyio

TOOL = '{"name": "a", "inputSchema": {"type": "object", "$defs": {"x": {"const": None}}, "x-own": [1, None]}, "own": 1}'
SERVER = """
import json, sys
TOOL = %s
for line in sys.stdin:
    request = json.loads(line)
    method, cursor = request["method"], (request.get("params") or {}).get("cursor")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif method == "tools/list":
        result = %s
    else:
        continue
    answer = {"error": result} if "code" in result else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | answer), flush=True)
"""


def listing(result: str) -> ServerConfig:
    return python_config(SERVER % (TOOL, result), protocol="legacy")


async def test_every_field_of_a_tool_is_kept_known_or_not() -> None:
    async with opened(listing('{"tools": [TOOL]}')) as connection:
        assert await connection.list_tools() == (
            [
                {
                    "name": "a",
                    "inputSchema": {"type": "object", "$defs": {"x": {"const": None}}, "x-own": [1, None]},
                    "own": 1,
                }
            ],
            None,
            (),
            (),
        )


async def test_pages_are_followed_to_the_last() -> None:
    pages = '{"tools": [TOOL]} | ({"nextCursor": str(int(cursor or 0) + 1)} if cursor != "3" else {})'
    async with opened(listing(pages)) as connection:
        assert len((await connection.list_tools()).tools) == 4


async def test_pages_that_go_in_a_circle_are_an_error() -> None:
    async with opened(listing('{"tools": [TOOL], "nextCursor": "again"}')) as connection:
        with pytest.raises(ServerAnswerError, match=r"'child', listing tools: .* its list of tools does not end"):
            await connection.list_tools()


async def test_a_list_that_is_none_is_an_error() -> None:
    async with opened(listing('{"tools": "none"}')) as connection:
        with pytest.raises(ServerAnswerError, match="its answer is not what MCP says: tools"):
            await connection.list_tools()


async def test_a_server_that_refuses_to_list_is_quoted() -> None:
    async with opened(listing('{"code": -32603, "message": "out of paper"}')) as connection:
        with pytest.raises(ServerRefusedError, match=r"out of paper \(-32603\)"):
            await connection.list_tools()


async def test_headers_that_a_schema_asks_for_are_sent_whether_or_not_the_tool_was_listed(
    steady: RemoteServer, guard: Guard
) -> None:
    config = ServerConfig(name="remote", transport=HttpTransport(guard.url, kind="http"))
    async with opened(config) as connection:
        for _ in range(2):
            result = await connection.call_tool("located", {"region": "eu"})
            assert result["content"][0]["text"] == "eu"
        before = len(guard.seen)
        await connection.call_tool("located", {"region": "us"})
        assert len(guard.seen) == before + 1, "a listed tool costs no list"
