"""Large contents pass a gateway while they are received: from any server over HTTP to any caller over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import uvicorn

from bridge.gateway import Gateway
from bridge.hosting import sockets
from bridge.hosting.http.limits import ConnectionLimits
from bridge.hosting.serve import http_protocol
from bridge.hosting.server import BackgroundServer
from bridge.server import Server, http_app
from bridge.server.limits import Limits, Rate
from bridge.telemetry.current import enabled
from tests.client.raw_http import HANDSHAKE, MODERN, RawServer, Request, http, raw_server, stream
from tests.server.http_server import HEADERS, initialize, modern, modern_headers, notification, request
from tests.server.test_observed import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
ERAS = (MODERN, "legacy")
LARGE_BYTES = 1024 * 1024
PART = b"QUJD" * (LARGE_BYTES // 4)
URI = "raw+big://blob"
META = {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}, "mine": 1}
OWN = {"resultType": "complete", "ttlMs": 7, "cacheScope": "private", "_meta": META}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def text_of(asked: Request, *, is_first: bool = True) -> tuple[bytes, bytes]:
    """A response with a large blob, in two halves; what belongs to the connection stands before or after the blob."""
    item = {"uri": "big://blob", "mimeType": "a/b", "blob": "%", "_meta": {"uri": "big://blob"}}
    result = {**OWN, "contents": [item]} if is_first else {"contents": [item], **OWN}
    message = json.dumps({"jsonrpc": "2.0", "id": asked.call_id, "result": result})
    before, _, after = message.partition("%")
    return before.encode() + PART, PART + after.encode()


def json_head(length: int) -> bytes:
    return http(200, b"", Content_Type="application/json").replace(b"Length: 0", b"Length: %d" % length)


def as_json(*parts: bytes | asyncio.Event | None) -> list[Any]:
    return [json_head(sum(len(part) for part in parts if isinstance(part, bytes))), *parts]


def chunked(form: str, *parts: bytes | asyncio.Event | None) -> list[Any]:
    """A response of unknown length: JSON, or an event with it in one line."""
    kind = b"application/json" if form == "json" else b"text/event-stream"
    if form == "sse":
        parts = (b"event: message\r\nid: 1\r\ndata: ", *parts, b"\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind
    pieces = [b"%x\r\n%b\r\n" % (len(part), part) if isinstance(part, bytes) else part for part in parts]
    return [head, *pieces, b"0\r\n\r\n"]


def serving(era: str, answer: Any) -> AbstractAsyncContextManager[RawServer]:
    return raw_server(era, answer, feature="resources")


@dataclass
class Caller:
    """A client of the gateway."""

    client: httpx.AsyncClient
    app: Any
    headers: dict[str, str] | None = None
    """Those of its session; None in the modern era."""
    capabilities: dict[str, Any] = field(default_factory=dict)
    """Its capabilities."""

    async def open(self, era: str) -> None:
        """Open a session in the handshake era."""
        if era == MODERN:
            return
        answer = await self.client.post("/mcp", json=initialize(self.capabilities), headers=HEADERS)
        session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
        self.headers = HEADERS | session
        await self.client.post("/mcp", json=notification("notifications/initialized"), headers=self.headers)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[httpx.Response]:
        """Read the resource."""
        message = request("resources/read", {"uri": URI}, 5)
        if self.headers is None:
            message = modern(message, self.capabilities)
        headers = self.headers or modern_headers(message)
        async with self.client.stream("POST", "/mcp", json=message, headers=headers) as response:
            yield response

    async def answer(self) -> Any:
        """Read the resource, and return the whole response."""
        async with self.reading() as response:
            return json.loads(await response.aread())


@asynccontextmanager
async def callers(
    server: RawServer,
    era: str = MODERN,
    protocol: str = "direct",
    bounds: Any = None,
    limits: Limits | None = None,
    **settings: Any,
) -> AsyncIterator[Caller]:
    """A client of a gateway to a server."""
    config = server.config(prefixing="always", **settings.pop("config", {}))
    capabilities = settings.pop("capabilities", {})
    async with Gateway([config]) as gateway:
        app = http_app(Server(gateway.features, name="bridge", limits=limits), **settings)
        handler = app.pre_asgi_handler(lambda: True) if protocol == "direct" else None
        kind: Any = "h11" if protocol == "h11" else http_protocol(handler, bounds or ConnectionLimits())
        uvicorn_config = uvicorn.Config(app, log_config=None, ws="none", http=kind, access_log=False)
        listeners, begun = sockets.bind(sockets.resolve("127.0.0.1", 0)), asyncio.Event()
        begun.set()
        origin = f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
        async with (
            BackgroundServer(uvicorn_config).running(listeners, begun),
            httpx.AsyncClient(base_url=origin, timeout=DEADLINE_SECONDS) as client,
        ):
            caller = Caller(client, app, capabilities=capabilities)
            await caller.open(era)
            yield caller
            app.state.shutdown()


@pytest.mark.parametrize("protocol", ["direct", "h11"])
@pytest.mark.parametrize("form", ["length", "json", "sse"])
@pytest.mark.parametrize("caller_era", ERAS)
@pytest.mark.parametrize("server_era", ERAS)
async def test_the_first_part_arrives_before_the_server_has_sent_the_last(
    server_era: str, caller_era: str, form: str, protocol: str
) -> None:
    arrived = asyncio.Event()

    def answer(asked: Request) -> Any:
        first, last = text_of(asked, is_first=form == "sse")
        return as_json(first, arrived, last) if form == "length" else chunked(form, first, arrived, last)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(server_era, answer) as server, callers(server, caller_era, protocol) as caller:
            async with caller.reading() as response:
                body = b""
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > LARGE_BYTES // 2:
                        arrived.set()
            assert ("mcp-session-id" in response.headers) is (caller_era != MODERN)
            assert len(caller.app.drain) == 0
    message = json.loads(body)
    item = {"uri": URI, "mimeType": "a/b", "blob": (PART * 2).decode(), "_meta": {"uri": "big://blob"}}
    result = message.pop("result")
    assert message == {"jsonrpc": "2.0", "id": 5}
    assert result.pop("contents") == [item]
    assert result["_meta"].pop("mine") == 1
    if caller_era == MODERN:
        assert result.pop("resultType") == "complete"
        assert (result.pop("ttlMs"), result.pop("cacheScope")) != (7, "private")
        assert result["_meta"].pop("io.modelcontextprotocol/serverInfo")["name"] != "raw"
    assert result == {"_meta": {}}


@pytest.mark.parametrize("caller_era", ERAS)
async def test_a_caller_that_could_be_asked_gets_the_first_part_as_early(caller_era: str) -> None:
    arrived = asyncio.Event()
    capabilities: dict[str, Any] = {"elicitation": {}}

    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return chunked("json", first, arrived, last)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            serving("legacy", answer) as server,
            callers(server, caller_era, capabilities=capabilities) as caller,
            caller.reading() as response,
        ):
            async for _ in response.aiter_raw():
                arrived.set()


@pytest.mark.parametrize("protocol", ["direct", "h11"])
@pytest.mark.parametrize("caller_era", ERAS)
@pytest.mark.parametrize("form", ["json", "sse"])
async def test_a_caller_that_hangs_up_ends_the_request_to_the_server(form: str, caller_era: str, protocol: str) -> None:
    def answer(asked: Request) -> Any:
        return chunked(form, text_of(asked)[0], asyncio.Event())

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server, caller_era, protocol) as caller:
            async with caller.reading() as response:
                await anext(response.aiter_raw())
                assert len(caller.app.drain) == 1
            await server.lost.wait()
            await none_runs(caller)


async def none_runs(caller: Caller) -> None:
    while len(caller.app.drain):  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0)


ENDS: dict[str, tuple[list[Any], str]] = {
    "lost": ([None], "broke off after"),
    "a second message": ([PART + b'"}]}}{"jsonrpc":"2.0","id":5,"result":{}}'], "malformed"),
    "a line break": ([b"\n" + PART], "not JSON|before it is complete"),
    "another id": (
        [b'"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"},"jsonrpc":"2.0","id":9}'],
        "not the",
    ),
    "an error too": ([b'"}]},"error":{"code":1,"message":"x"}}'], "contents and an error"),
    "questions": ([b'"}],"resultType":"input_required"}}'], "not valid MCP"),
    "too early": ([b'"}]}'], "before it is complete"),
    "no UTF-8": ([b"\xff" + PART], "UTF-8"),
}


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("end", ENDS)
async def test_a_response_that_goes_wrong_is_broken_off_and_the_log_says_why(
    end: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    rest, why = ENDS[end]

    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return as_json(first, last) if len(reads(server)) > 1 else chunked(form, first, *rest)

    with anyio.fail_after(DEADLINE_SECONDS), caplog.at_level(logging.WARNING):
        async with serving(MODERN, answer) as server, callers(server) as caller:
            with pytest.raises(httpx.RemoteProtocolError):
                await caller.answer()
            await none_runs(caller)
            assert (await caller.answer())["result"]["contents"][0]["uri"] == URI
    (record,) = [each for each in caplog.records if "broke off" in each.message]
    assert record.name == "bridge.server"
    assert URI in record.message
    assert any(each in record.message for each in why.split("|")), record.message


def reads(server: RawServer) -> list[Request]:
    return [each for each in server.requests if each.message.get("method") == "resources/read"]


async def test_a_server_that_stalls_is_waited_for_as_long_as_for_any_answer(caplog: pytest.LogCaptureFixture) -> None:
    def answer(asked: Request) -> Any:
        return chunked("json", text_of(asked)[0], asyncio.Event())

    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            serving(MODERN, answer) as server,
            callers(server, config={"timeout_seconds": 0.2}) as caller,
        ):
            with pytest.raises(httpx.RemoteProtocolError):
                await caller.answer()
            await server.lost.wait()
    assert "no answer within 0.2 seconds without progress" in caplog.text


@pytest.mark.parametrize("protocol", ["direct", "asgi"])
async def test_a_caller_that_does_not_read_pauses_the_server_and_is_cut_off(protocol: str) -> None:
    parts = [PART] * 64

    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return chunked("json", first, *parts, last)

    bounds = ConnectionLimits(max_unread_seconds=0.2)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server, MODERN, protocol, bounds) as caller:
            async with caller.reading():
                await server.lost.wait()
            await none_runs(caller)
            assert server.sent_bytes < 32 * len(PART)


@pytest.mark.parametrize("form", ["length", "json"])
async def test_a_result_over_its_limit_is_refused_or_broken_off(form: str, caplog: pytest.LogCaptureFixture) -> None:
    def answer(asked: Request) -> Any:
        return as_json(*text_of(asked)) if form == "length" else chunked(form, *text_of(asked))

    limits = Limits(max_result_bytes=3 * LARGE_BYTES // 2)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server, limits=limits) as caller:
            if form == "length":
                assert "ask for less" in (await caller.answer())["error"]["message"]
            else:
                with pytest.raises(httpx.RemoteProtocolError):
                    await caller.answer()
                assert "and may have 1572864: ask for less" in caplog.text
            await none_runs(caller)


@pytest.mark.parametrize("length", [2 * LARGE_BYTES, 2 * LARGE_BYTES + 64 * 1024, 4 * LARGE_BYTES])
async def test_a_result_within_its_limit_passes(length: int) -> None:
    limits = Limits(max_result_bytes=length + 300)
    async with (
        serving(MODERN, lambda asked: as_json(*text_of(asked))) as server,
        callers(server, limits=limits) as caller,
    ):
        assert len((await caller.answer())["result"]["contents"][0]["blob"]) == 2 * LARGE_BYTES


async def test_the_bytes_that_pass_count_for_the_caller() -> None:
    limits = Limits(byte_rate=Rate(LARGE_BYTES, 1_000_000))
    async with (
        serving(MODERN, lambda asked: chunked("json", *text_of(asked))) as server,
        callers(server, limits=limits) as caller,
    ):
        assert len((await caller.answer())["result"]["contents"][0]["blob"]) == 2 * LARGE_BYTES
        async with caller.reading() as response:
            assert response.status_code == 429
            assert 1_000_000 <= int(response.headers["retry-after"]) <= 1_002_000


async def test_a_read_counts_as_running_until_its_end_and_a_drain_breaks_it_off() -> None:
    def answer(asked: Request) -> Any:
        return chunked("json", text_of(asked)[0], asyncio.Event())

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server, limits=Limits(concurrency=1)) as caller:
            async with caller.reading() as response:
                body = response.aiter_raw()
                await anext(body)
                assert "too many" in (await caller.answer())["error"]["message"]
                await caller.app.drain(0)
                with pytest.raises(httpx.RemoteProtocolError):
                    async for _ in body:
                        pass
            await server.lost.wait()


@pytest.mark.parametrize(
    "result",
    [
        pytest.param({"contents": [{"uri": "big://blob", "text": "x" * 1000}], **OWN}, id="small"),
        pytest.param({"_meta": {"x": "y" * LARGE_BYTES}, "resultType": "complete"}, id="no contents"),
        pytest.param({"contents": [{"uri": "big://blob", "text": 1, "x": "y" * LARGE_BYTES}], **OWN}, id="malformed"),
        pytest.param({**OWN, "_meta": {"x": "y" * LARGE_BYTES}, "contents": []}, id="large beside contents"),
    ],
)
async def test_any_other_result_is_answered_whole(result: Any) -> None:
    def answer(asked: Request) -> Any:
        return as_json(json.dumps({"jsonrpc": "2.0", "id": asked.call_id, "result": result}).encode())

    async with serving(MODERN, answer) as server, callers(server) as caller, caller.reading() as response:
        assert json.loads(await response.aread()).keys() & {"result", "error"}
        assert "content-length" in response.headers


async def test_large_contents_among_other_events_are_left_to_the_sdk() -> None:
    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        text = json.dumps(json.loads(first + last), indent=1).replace("\n", "\ndata: ")
        return stream(b"data: " + text.encode() + b"\n\n")

    async with serving(MODERN, answer) as server, callers(server) as caller:
        assert len((await caller.answer())["result"]["contents"][0]["blob"]) == 2 * LARGE_BYTES


async def test_telemetry_records_a_read_at_its_end_with_its_error() -> None:
    arrived = asyncio.Event()

    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return chunked("json", first, None) if arrived.is_set() else chunked("json", first, arrived, last)

    watched = Watched()
    with anyio.fail_after(DEADLINE_SECONDS), enabled(watched.observer):
        async with serving(MODERN, answer) as server, callers(server) as caller:
            async with caller.reading() as response:
                body = response.aiter_raw()
                await anext(body)
                assert watched.records == []
                arrived.set()
                async for _ in body:
                    pass
            with pytest.raises(httpx.RemoteProtocolError):
                await caller.answer()
            await none_runs(caller)
    assert [(each["resource"], each.get("error")) for each in watched.records] == [(URI, None), (URI, "-32603")]
