"""A gateway passes the bytes of a result on, without building values from it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.client.provider import McpToolProvider
from bridge.client.remote_tool import RemoteExecutor, remote_tool
from bridge.client.uris import UriNames
from bridge.gateway.proxy import ProxyExecutor
from bridge.gateway.suspended_calls import SuspendedCalls
from bridge.gateway.tasks import GatewayTasks
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import ServerCore
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.tools.toolbox import ToolBox
from bridge.wire import tools as wire
from tests.client.raw_http import MODERN, Request, http, opened, raw_server
from tests.client.upstreams import upstream_of
from tests.server.http_server import call, modern

if TYPE_CHECKING:
    from bridge.client.connection.connection import Connection

pytestmark = pytest.mark.anyio

LISTED = {"name": "add", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["x"]}}
BODY = (
    '"content":[{"type":"image","data":"' + "AAAA" * 1000 + '","mimeType":"image/png"},'
    '{"type":"text","text":"\\u00e9","annotations":{"priority":1.0}}],"structuredContent":{"a":1.50,"b":[1E2]}'
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # own connections need it


def gateway_to(connection: Connection, uris: UriNames | None = None) -> Dispatch:
    """The dispatch of a server with the proxy of one tool."""
    tool = remote_tool(LISTED, connection, validates_results=False, uris=uris)
    assert isinstance(tool.executor, RemoteExecutor)
    proxy = ProxyExecutor(tool.executor, upstream_of(connection), SuspendedCalls(), GatewayTasks(McpToolProvider()))
    return Dispatch(ServerCore(ToolBox([replace(tool, executor=proxy)]), name="gateway", version="2"))


async def answered(gateway: Dispatch, era: str, **arguments: Any) -> bytes:
    message, origin = call("add", arguments), LocalOrigin(EVERYTHING)
    if era == MODERN:
        exchange = gateway.modern(modern(message), origin)
    else:
        exchange = gateway.handshake(message, None, origin, "2025-11-25")
    assert isinstance(exchange, ServedExchange)
    return (await exchange.responder.run(exchange))[0]


@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("server_era", ["legacy", MODERN])
async def test_the_bytes_of_a_result_are_passed_on_and_nothing_of_it_is_built(
    era: str, server_era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = '"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"behind","version":"1"},"x/y":[1]}'

    def answer(request: Request) -> list[bytes | None]:
        own = f',"resultType":"complete",{meta}' if server_era == MODERN else ""
        text = f'{{"jsonrpc":"2.0","id":{request.call_id},"result":{{{BODY}{own}}}}}'
        return [http(200, text.encode(), Content_Type="application/json")]

    async with raw_server(server_era, answer) as server, opened(server.config()) as connection:
        monkeypatch.setattr(wire, "block_from_json", None)
        response = await answered(gateway_to(connection), era, text="é", n=1.5)
        (sent,) = server.calls
    assert sent.message["params"]["arguments"] == {"text": "é", "n": 1.5}
    assert response.startswith(b'{"jsonrpc":"2.0","id":1,"result":{' + BODY.encode())
    result = json.loads(response)["result"]
    expected: dict[str, Any] = {} if server_era != MODERN else {"x/y": [1]}
    if era == MODERN:
        expected["io.modelcontextprotocol/serverInfo"] = {"name": "gateway", "version": "2"}
    assert result.get("_meta", {}) == expected
    assert result.get("resultType") == ("complete" if era == MODERN else None)


LINK = '{"type":"resource_link","uri":"b://evil","name":"n"}'
TEXT = '{"type":"text","text":""}'


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([LINK], ["b://evil"]),
        ([LINK.replace("resource_link", r"\u0072esource_link")], ["b://evil"]),
        ([LINK.replace("uri", r"u\u0072i").replace("_", r"\u005F")], ["b://evil"]),
        ([LINK.replace(",", ',"uri":"b://other",', 1)], ["b://evil"]),
        ([LINK.replace("}", ',"resource":{"uri":"b://x","text":""}}')], ["b://evil", "b://x"]),
        ([LINK, TEXT], []),
        ([LINK.replace("resource", r"r\u0065source"), TEXT], []),
    ],
)
@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_every_uri_in_a_result_is_a_local_one(blocks: list[str], expected: list[str], era: str) -> None:
    """Several members have the same name: clients may read any of them."""

    def answer(request: Request) -> list[bytes | None]:
        members = ",".join([f'"content":[{block}]' for block in blocks])
        text = f'{{"jsonrpc":"2.0","id":{request.call_id},"result":{{{members},"resultType":"complete"}}}}'
        return [http(200, text.encode(), Content_Type="application/json")]

    uris = UriNames()
    uris.assign({"raw": "always"}, {})
    async with raw_server(MODERN, answer) as server, opened(server.config()) as connection:
        response = (await answered(gateway_to(connection, uris), era)).decode()
    assert re.findall(r'"(?:uri|u\\u0072i)":"([^"]*)"', response) == [f"raw+{uri}" for uri in expected]


async def test_structured_content_that_an_older_client_cannot_take_is_left_out() -> None:
    def answer(request: Request) -> list[bytes | None]:
        result = f'{{"content":[],"structuredContent":[{"1," * 1000}1],"resultType":"complete"}}'
        text = f'{{"jsonrpc":"2.0","id":{request.call_id},"result":{result}}}'
        return [http(200, text.encode(), Content_Type="application/json")]

    async with raw_server(MODERN, answer) as server, opened(server.config()) as connection:
        gateway = gateway_to(connection)
        assert json.loads(await answered(gateway, "legacy"))["result"] == {"content": []}
        assert len(json.loads(await answered(gateway, MODERN))["result"]["structuredContent"]) == 1001


async def test_a_number_that_json_does_not_have_is_not_passed_on() -> None:
    def answer(request: Request) -> list[bytes | None]:
        result = f'{{"content":[],"structuredContent":{{"x":NaN,"y":"{"y" * 2000}"}},"resultType":"complete"}}'
        text = f'{{"jsonrpc":"2.0","id":{request.call_id},"result":{result}}}'
        return [http(200, text.encode(), Content_Type="application/json")]

    async with raw_server(MODERN, answer) as server, opened(server.config()) as connection:
        response = await answered(gateway_to(connection), MODERN)
    assert b'"structuredContent":{"x":null,' in response


async def test_arguments_with_a_number_that_json_does_not_have_are_refused() -> None:
    async with raw_server(MODERN, lambda _: []) as server, opened(server.config()) as connection:
        result = json.loads(await answered(gateway_to(connection), MODERN, n=float("inf")))["result"]
        assert result["isError"]
        assert "JSON data" in result["content"][0]["text"]
        assert server.calls == []
