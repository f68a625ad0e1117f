from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.server import http_app
from bridge.server.http import asgi_calls
from bridge.server.http.asgi_calls import serve_stream
from bridge.server.http.requests import Head, Request
from bridge.server.http.responses import AsgiBody
from bridge.server.http.streams import KEEP_ALIVE, EventStream, OpenStreams, stream_headers
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_server import events, modern, modern_headers, open_session, request
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Message

DEADLINE_SECONDS = 60
LISTEN = modern(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="news"))


def test_open_streams_do_not_hold_up_the_end(errors: Callable[[], list[str]]) -> None:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client, ExitStack() as streams:
        with http_server.serving(http_app(ToolBox(ADD))) as origin:
            headers = open_session(client, f"{origin}/mcp")
            opened = [
                streams.enter_context(client.stream("GET", f"{origin}/sse")),
                streams.enter_context(client.stream("GET", f"{origin}/mcp", headers=headers)),
                streams.enter_context(
                    client.stream("POST", f"{origin}/mcp", json=LISTEN, headers=modern_headers(LISTEN))
                ),
            ]
        # The server could not have been left before it ended. Its streams were closed in order, and the
        # subscription got its result.
        sse, get, listen = [list(stream.iter_lines()) for stream in opened]
    assert sse[0] == "event: endpoint"
    assert list(events(iter(get))) == []
    acknowledged, result = events(iter(listen))
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert result["id"] == "news"
    assert errors() == []


class Client:
    """A client of a stream: receives what is sent, and may disconnect."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.is_complete = False
        self.started, self.gone = anyio.Event(), anyio.Event()

    def request(self) -> Request:
        request = Request(Head({"type": "http", "method": "GET", "path": "/mcp", "headers": []}))
        request.receive, request.send = self._receive, self._send
        return request

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.gone.is_set():
            raise ConnectionResetError
        if message["type"] == "http.response.start":
            assert (message["status"], message["headers"]) == (200, list(stream_headers(None)))
            self.started.set()
        else:
            self.parts.append(message["body"])
            self.is_complete = not message["more_body"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


async def produce_one(write: Callable[[bytes], Awaitable[None]]) -> None:
    await write(b"one")


async def produce_forever(write: Callable[[bytes], Awaitable[None]]) -> None:
    await write(b"one")
    await anyio.sleep_forever()


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["server", "others", "client"])
async def test_a_stream_is_ended_by_its_server_by_others_and_by_its_client(ending: str) -> None:
    streams, client, ends = OpenStreams(), Client(), list[Any]()

    async def serve() -> None:
        with streams.opened(ends) as ended:
            await serve_stream(client.request(), stream_headers(None), produce_forever, ended)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await client.started.wait()
            await anyio.wait_all_tasks_blocked()
            assert (len(streams), len(ends)) == (1, 1)
            {"server": streams.end, "others": ends[0], "client": client.gone.set}[ending]()
    assert (b"".join(client.parts), client.is_complete) == (b"one", ending != "client")
    assert (len(streams), ends) == (0, [])


@pytest.mark.anyio
async def test_a_call_that_only_reports_lets_others_run_and_is_cancelled_though_its_client_reads() -> None:
    stream, sent = EventStream(AsgiBody(Client().request().send), None, "1", None), 0
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel, scope)
            while sent < 1000:
                await stream.send(b"{}")
                sent += 1
    assert sent < 1000


async def cancel(scope: anyio.CancelScope) -> None:
    scope.cancel()


@pytest.mark.anyio
async def test_a_stream_that_has_no_more_to_send_ends() -> None:
    client = Client()
    with anyio.fail_after(DEADLINE_SECONDS):
        await serve_stream(client.request(), stream_headers(None), produce_one, anyio.Event())
    assert (b"".join(client.parts), client.is_complete) == (b"one", True)


@pytest.mark.anyio
async def test_what_is_sent_to_a_client_that_has_disconnected_is_dropped() -> None:
    client, wrote = Client(), list[bytes]()

    async def produce(write: Callable[[bytes], Awaitable[None]]) -> None:
        client.gone.set()
        await write(b"one")
        wrote.append(b"one")
        await anyio.sleep_forever()

    with anyio.fail_after(DEADLINE_SECONDS):
        await serve_stream(client.request(), stream_headers(None), produce, anyio.Event())
    assert (client.parts, wrote) == ([b""], [b"one"])


@pytest.mark.anyio
async def test_a_silent_stream_gets_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_calls, "SILENT_SECONDS", 0.001)
    client, commented = Client(), anyio.Event()

    async def produce(write: Callable[[bytes], Awaitable[None]]) -> None:
        while KEEP_ALIVE not in client.parts:
            await anyio.lowlevel.checkpoint()
        commented.set()

    with anyio.fail_after(DEADLINE_SECONDS):
        await serve_stream(client.request(), stream_headers(None), produce, anyio.Event())
    assert commented.is_set()
