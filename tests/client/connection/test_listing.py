"""Lists of tools: all pages, unchanged, and lists without end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from bridge.client import HttpTransport, ServerConfig
from bridge.client.connection import listing as listing_module
from bridge.errors import ServerAnswerError, ServerRefusedError
from tests.client.conftest import opened, python_config
from tests.client.endpoint import MODERN, endpoint, result_of
from tests.client.scripted import listed

if TYPE_CHECKING:
    from starlette.responses import Response

    from bridge.types import Json
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
        with pytest.raises(ServerAnswerError, match="its response is not valid MCP: tools"):
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


@pytest.mark.parametrize(
    ("name", "limit", "problem"),
    [
        ("MAX_TOOLS", 250, "it lists more than 250 tools"),
        ("MAX_LIST_BYTES", 2**14, "its list of tools is longer than 0.015625 MiB"),
    ],
)
async def test_a_list_is_bounded_over_all_its_pages(
    name: str, limit: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, name, limit)
    pages = '{"tools": [TOOL] * 200} | ({"nextCursor": "2"} if not cursor else {})'
    async with opened(listing(pages)) as connection:
        with pytest.raises(ServerAnswerError, match=problem):
            await connection.list_tools()


async def test_a_tool_whose_headers_are_not_valid_is_left_out_over_http_with_the_reason() -> None:
    asks = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    wrong = {"type": "object", "properties": {"region": {"type": "number", "x-mcp-header": "Region"}}}

    async def pages(message: Json) -> Response:
        tools = [listed("pay", inputSchema=asks), listed("wrong", inputSchema=wrong)]
        return result_of(message, {"tools": tools, "ttlMs": 0, "cacheScope": "private"})

    with endpoint(MODERN, tools_list=pages) as server:
        async with opened(server.config()) as connection:
            listing = await connection.list_tools()
    assert [tool["name"] for tool in listing.tools] == ["pay"]
    reason = "the property 'region' with x-mcp-header is not a string, an integer or a boolean"
    assert listing.malformed == (f"the tool 'wrong' is malformed: {reason}",)


async def test_others_get_their_turn_while_a_long_list_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    seen: list[int] = []

    def sift(page: Any, tools: list[Any], version: str, *method: Any) -> Any:
        seen.append(turns)
        return real(page, tools, version, *method)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    real = listing_module.sift
    monkeypatch.setattr(listing_module, "sift", sift)
    async with opened(listing('{"tools": [TOOL] * 1000}')) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        assert len((await connection.list_tools()).tools) == 1000
        tasks.cancel_scope.cancel()
    assert len(seen) == 20
    assert len(set(seen)) == 20, "each part in a turn of its own"
