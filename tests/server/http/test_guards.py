from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic_core import from_json

from bridge.server import http_app
from bridge.server.http import requests
from bridge.server.http.app import BridgeApp
from bridge.server.http.endpoint import Endpoint
from bridge.server.http.guards import GuardMiddleware
from bridge.server.http.host_origin import HostOriginGuard
from bridge.server.http.requests import Head
from bridge.server.http.responses import send_error
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import add
from tests.server.auth.test_pre_asgi import scope_of

if TYPE_CHECKING:
    from bridge.server.http.requests import Request

KINDS = ["direct", "httptools", "h11"]
CALL = http.modern(http.call("add", {"a": 1, "b": 2}))
UNKNOWN = http.modern(http.request("nothing/known"))


class Wanting:
    """Guard that refuses requests without a header."""

    def admits_at_once(self, request: Request) -> bool:
        return b"x-wanted" in request.headers

    async def admit(self, request: Request) -> bool:
        if b"x-wanted" in request.headers:
            return True
        await send_error(request.send, 418, "the header x-wanted is missing")
        return False


WANTED: list[tuple[dict[str, str], int]] = [({}, 418), ({"x-wanted": "yes"}, 200)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("headers", "status"), WANTED)
def test_one_more_guard_in_the_list_decides_over_each_protocol(kind: str, headers: dict[str, str], status: int) -> None:
    app = http_app(ToolBox(add))
    app.guards.append(Wanting())
    with http.serving(app, http=kind) as origin:
        answer = httpx.post(f"{origin}/mcp", json=CALL, headers=http.modern_headers(CALL) | headers, timeout=20)
    assert answer.status_code == status


@pytest.mark.anyio
@pytest.mark.parametrize(("headers", "status"), WANTED)
async def test_one_more_guard_in_the_list_decides_before_asgi(headers: dict[str, str], status: int) -> None:
    app = http_app(ToolBox(add))
    app.guards.append(Wanting())
    way = app.pre_asgi_handler(lambda: True)
    assert way is not None
    assert (way.begin(Head(scope_of(CALL, headers)), json.dumps(CALL).encode()) is not None) is (status == 200)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_message_is_dispatched_once_and_parsed_once(kind: str, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatched, parsed = list[Any](), list[bytes]()
    begin = Endpoint.begin

    def counted_begin(self: Endpoint, request: Request) -> Any:
        dispatched.append(request)
        return begin(self, request)

    def counted_from_json(body: bytes) -> Any:
        parsed.append(body)
        return from_json(body)

    monkeypatch.setattr(Endpoint, "begin", counted_begin)
    monkeypatch.setattr(requests, "from_json", counted_from_json)
    message, headers = (UNKNOWN, http.modern_headers(UNKNOWN)) if era == "modern" else (http.initialize(), http.HEADERS)
    body = json.dumps(message).encode()
    lines = [
        f"{name}: {value}" for name, value in (headers | {"host": "localhost", "content-length": len(body)}).items()
    ]
    with http.serving(http_app(ToolBox(add)), http=kind) as origin:
        url = httpx.URL(origin)
        with socket.create_connection((url.host, url.port), timeout=20) as connection:
            # In one piece, as only such requests are answered before ASGI.
            connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
            answer = b""
            while b'"jsonrpc"' not in answer:
                answer += connection.recv(65_536)
    assert (b'"error"' in answer) is (era == "modern")
    assert (len(dispatched), len(parsed)) == (1, 1)


def test_an_app_says_by_type_what_it_offers() -> None:
    app = http_app(ToolBox(add))
    assert isinstance(app, BridgeApp)
    middleware: set[object] = {each.cls for each in app.user_middleware}
    assert middleware == {GuardMiddleware}
    assert isinstance(app.guards[0], HostOriginGuard)
    assert (app.state.shutdown, app.state.drain) == (app.shutdown, app.drain)
