from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from anyio.lowlevel import checkpoint

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.auth.identity import caller_of_request
from bridge.server.http.requests import Head
from bridge.server.http.responses import Response
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, add, bearer

if TYPE_CHECKING:
    from bridge.server.http.app import BridgeApp
    from bridge.server.http.guards import PreAsgiHandler

pytestmark = pytest.mark.anyio


@tool(run_in_thread=False)
def caller_name() -> str:
    """Return the caller of the current request."""
    caller = caller_of_request()
    return "nobody" if caller is None else caller.name


KEYS = (ApiKey("ada", ADA), ApiKey("bob", BOB, tools=("add",)))
CALL = http.modern(http.call("caller_name"))


def scope_of(message: dict[str, Any], headers: dict[str, str], query: bytes = b"") -> dict[str, Any]:
    given = http.modern_headers(message) | {"host": "localhost"} | headers
    raw = [(name.encode(), value.encode()) for name, value in given.items()]
    return {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "query_string": query, "headers": raw}


async def recognise(app: BridgeApp, key: str) -> None:
    """Let the guard check a key."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/mcp", json=CALL, headers=http.modern_headers(CALL) | bearer(key))
        assert answer.status_code != 401


def way_into(app: BridgeApp) -> PreAsgiHandler:
    way = app.pre_asgi_handler(lambda: True)
    assert way is not None
    return way


async def test_only_a_credential_that_is_recognised_is_answered_directly() -> None:
    keys = ApiKeys(*KEYS)
    auth = Auth(keys)
    app = http_app(ToolBox(add, caller_name), auth=auth)
    body = json.dumps(CALL).encode()
    async with app.router.lifespan_context(app):
        way = way_into(app)
        assert way.begin(Head(scope_of(CALL, bearer(ADA))), body) is None
        await recognise(app, ADA)
        work = way.begin(Head(scope_of(CALL, bearer(ADA))), body)
        assert work is not None
        assert not isinstance(work, Response)
        response = await work.run()
        assert response is not None
        assert json.loads(response.body)["result"]["content"][0]["text"] == "ada"
        assert caller_of_request() is None
        for headers, query in (
            ({}, b""),
            (bearer(ADA + "x"), b""),
            (bearer(BOB), b""),
            (bearer(ADA), b"access_token=" + ADA.encode()),
        ):
            assert way.begin(Head(scope_of(CALL, headers, query)), body) is None
        twice = scope_of(CALL, bearer(ADA))
        twice["headers"].append((b"authorization", b"Bearer x"))
        assert way.begin(Head(twice), body) is None


async def test_a_tool_that_the_key_may_not_use_is_answered_as_unknown() -> None:
    app = http_app(ToolBox(add, caller_name), auth=ApiKeys(*KEYS))
    listing = http.modern(http.request("tools/list"))
    async with app.router.lifespan_context(app):
        way = way_into(app)
        await recognise(app, BOB)
        called = way.begin(Head(scope_of(CALL, bearer(BOB))), json.dumps(CALL).encode())
        assert called is not None
        assert not isinstance(called, Response)
        assert json.loads((await called.run()).body)["error"]["code"] == -32602
        answer = way.begin(Head(scope_of(listing, bearer(BOB))), json.dumps(listing).encode())
        assert isinstance(answer, Response)
        assert [each["name"] for each in json.loads(answer.body)["result"]["tools"]] == ["add"]


async def test_a_key_that_was_taken_away_is_recognised_no_more() -> None:
    told: list[Any] = []

    class Changing(ApiKeys):
        async def keep_current(self, changed: Any) -> None:
            told.append(changed)

    app = http_app(ToolBox(add, caller_name), auth=Changing(*KEYS))
    body = json.dumps(CALL).encode()
    async with app.router.lifespan_context(app):
        way = way_into(app)
        await recognise(app, ADA)
        assert way.begin(Head(scope_of(CALL, bearer(ADA))), body) is not None
        await checkpoint()  # the verifier is observed from the first request
        told[0]()
        assert way.begin(Head(scope_of(CALL, bearer(ADA))), body) is None
