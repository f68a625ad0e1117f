"""Middleware of servers: around every kind of request, in both eras and over every transport."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client

from bridge import InvocationContext, Middleware
from bridge.server import Features, Server, http_app
from bridge.server.auth.access import EVERYTHING
from bridge.server.exchange import LocalOrigin
from bridge.server.observed import dispatch_of
from bridge.testing import connected
from tests.server.http_server import answer, modern, modern_headers, open_session, request, whole_client
from tests.server.stdio_process import StdioProcess, modern_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

from tests.server.middleware.surrounded import (
    CHANGED,
    ERAS,
    FEATURES,
    LOCAL,
    LOG,
    REQUESTS,
    TOLD,
    Changing,
    Era,
    Json,
    Recording,
    add,
    answered,
    review,
    today,
)


@pytest.mark.parametrize("http", ["h11", "direct"])
def test_requests_and_results_of_every_kind_are_changed_over_http(serving: Callable[..., str], http: str) -> None:
    url = serving(http_app(Server(Features.of(*FEATURES), name="bridge", middleware=[Changing()])), http=http) + "/mcp"
    with whole_client() as client:
        session = open_session(client, url)
        for method, params in REQUESTS:
            in_session = answer(client.post(url, json=request(method, params), headers=session))
            message = modern(request(method, params))
            alone = answer(client.post(url, json=message, headers=modern_headers(message)))
            for reply in (in_session, alone):
                assert TOLD[method](reply["result"]) == CHANGED[method]


PROGRAM = """
import bridge
from tests.server.middleware.surrounded import FEATURES, Changing

if __name__ == "__main__":
    bridge.run(bridge.Server(FEATURES, name="bridge", middleware=[Changing()]))
"""


@pytest.mark.parametrize("protocol", ERAS)
def test_requests_and_results_of_every_kind_are_changed_over_stdio(tmp_path: Path, protocol: Era) -> None:
    program = tmp_path / "changing.py"
    program.write_text(PROGRAM, encoding="utf-8")
    with StdioProcess(command=[str(program)]) as server:
        if protocol == "legacy":
            server.initialize()
        for number, (method, params) in enumerate(REQUESTS):
            message = (
                request(method, params, number) if protocol == "legacy" else modern_request(number, method, **params)
            )
            assert TOLD[method](server.answer(message)["result"]) == CHANGED[method]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_requests_are_surrounded_over_sse(serving: Callable[..., str]) -> None:
    origin = serving(http_app(Server(Features.of(*FEATURES), name="bridge", middleware=[Changing()])))
    async with sse_client(f"{origin}/sse") as streams, ClientSession(*streams) as client:
        await client.initialize()
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert [block.text for block in result.content] == ["42", "42"]  # type: ignore[union-attr]
        assert [each.name for each in (await client.list_tools()).tools] == ["add", "subtract"]


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
async def test_the_first_is_the_outermost_and_on_request_surrounds_the_method_of_the_kind(protocol: Era) -> None:
    recording = [Recording("one"), Recording("two")]
    async with connected(*FEATURES, protocol=protocol, middleware=recording) as provider:
        LOG.clear()
        assert (await provider.call("add", {"a": 2, "b": 3})).text == "5"
        layers = [f"{name} {hook} add" for name in ("one", "two") for hook in ("on_request", "call_tool")]
        assert layers + ["add"] + ["one end" if i > 1 else "two end" for i in range(4)] == LOG
        LOG.clear()
        assert (await provider.resources.read("notes://today"))[0].content == "buy milk"
        read = [f"{name} on_request notes://today" for name in ("one", "two")]
        assert [*read, "today", "two end", "one end"] == LOG


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
async def test_a_list_that_is_changed_is_cut_into_pages(protocol: Era) -> None:
    server = Server(Features.of(*FEATURES), name="pages", page_size=1, middleware=[Changing()])
    exchange = dispatch_of(server)
    names, cursor = [], None
    while True:
        params: Json = {} if cursor is None else {"cursor": cursor}
        message = modern(request("tools/list", params))
        result = json.loads(await answered(exchange.modern(message, LocalOrigin(EVERYTHING))))["result"]
        names += [each["name"] for each in result["tools"]]
        if (cursor := result.get("nextCursor")) is None:
            break
        assert len(names) == 1
    assert names == ["add", "subtract"]
    refused = exchange.modern(modern(request("tools/list", {"cursor": "?"})), LocalOrigin(EVERYTHING))
    assert json.loads(await answered(refused))["error"]["message"] == "the cursor '?' is not one of this server's"
    refused = exchange.modern(modern(request("tools/list", {"cursor": 1})), LocalOrigin(EVERYTHING))
    assert json.loads(await answered(refused))["error"]["code"] == -32602


# --- costs ------------------------------------------------------------------------------------------------------------


def _functions_called(server: Server, messages: Iterable[Json]) -> list[str]:
    """Return the functions of Python that answering messages calls, once all is warm."""
    dispatch, called = dispatch_of(server), list[str]()

    def answer_all() -> None:
        for message in messages:
            exchange = dispatch.modern(message, LOCAL)
            if not isinstance(exchange, bytes):
                assert exchange.responder.start(exchange, lambda work: work.send(None)) is not None

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    answer_all()
    sys.setprofile(count)
    try:
        answer_all()
    finally:
        sys.setprofile(None)
    return called


class OnlyLists(Middleware):
    """Surrounds lists of prompts alone."""

    async def list_prompts(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(request, context)


def test_methods_that_are_not_overridden_cost_nothing() -> None:
    features = Features.of(add, today, review)
    messages = [
        modern(request(method, {**params, **({"uri": "notes://today"} if "uri" in params else {})}))
        for method, params in REQUESTS
        if method not in ("prompts/list", "completion/complete")
    ]
    plain = _functions_called(Server(features, name="tests"), messages)
    surrounded = _functions_called(Server(features, name="tests", middleware=[OnlyLists()]), messages)
    assert plain == surrounded
    assert not [each for each in plain if "middleware" in each.lower() or "Layer" in each]
