"""Streams of calls that are closed early or break, and are resumed; without replicas."""

from __future__ import annotations

import gc
import socket
import threading
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from mcp import Client

from bridge import InvocationContext, McpToolProvider, ToolBox, tool
from bridge.client.config.servers import ServerConfig
from bridge.client.transports.http import HttpTransport
from bridge.server import http_app
from bridge.server.http import event_store, session_requests, streams
from bridge.server.http.event_store import MemoryEvents
from bridge.testing import connected
from tests.server import http_server
from tests.server.cluster.speaking import Talk, call, closed_by, report, text_of
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.cluster.speaking import Event

DEADLINE_SECONDS = 60


@tool
async def leaves(context: InvocationContext) -> str:
    """Close the stream, and answer."""
    await context.close_stream()
    return "answered"


@tool
def leaves_in_thread(context: InvocationContext) -> str:
    """Close the stream from a worker thread, report, and answer."""
    context.blocking.close_stream()
    context.blocking.progress(1, 1)
    return "answered"


LEAVING = ToolBox(leaves, leaves_in_thread)


@pytest.fixture(params=["h11", "direct"])
def url(request: pytest.FixtureRequest, serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(streams, "RETRY_MILLISECONDS", 10)
    return f"{serving(http_app(ToolBox(*TOOLS, *LEAVING)), http=request.param)}/mcp"


@contextmanager
def begun(talk: Talk, url: str) -> Iterator[tuple[Event, socket.socket]]:
    """A running call whose client has lost its stream after the first event."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        request = call("hold", token="t", port=listener.getsockname()[1])
        with talk.streamed(url, id=5, **request) as events:
            first = next(events)
            running, _ = listener.accept()
        with running:
            yield first, running


def test_a_stream_begins_with_an_event_to_resume_it_from(url: str) -> None:
    talk = Talk(url)
    body = {"jsonrpc": "2.0", "id": 1, **call("leaves")}
    with httpx.stream("POST", url, json=body, headers=talk.headers, timeout=DEADLINE_SECONDS) as response:
        lines = [line.partition(":")[::2] for line in response.iter_lines() if line]
    assert [name for name, _ in lines] == ["id", "retry", "data"]
    assert dict(lines) == {"id": dict(lines)["id"], "retry": " 10", "data": " "}


def test_the_answer_comes_on_the_resumed_stream(url: str) -> None:
    talk = Talk(url)
    with talk.streamed(url, id=1, **call("leaves")) as events:
        (first,) = events
    for _ in range(2):  # a client whose connection broke again may not have received it
        with talk.resumed(url, first.id) as events:
            (answer,) = events
            assert text_of(answer.message) == "answered"
    with talk.resumed(url, answer.id) as events:
        assert list(events) == []


def test_a_stream_may_be_closed_again_when_it_was_resumed(url: str) -> None:
    talk = Talk(url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        body = call("steered", token="t", port=listener.getsockname()[1])
        with talk.streamed(url, id=5, **body) as stream, closed_by(listener) as running:
            *_, latest = stream
            for number in (2, 3):
                with talk.resumed(url, latest.id) as resumed:
                    running.sendall(b"report")
                    latest = report(number, resumed)
                    running.sendall(b"close")
                    assert list(resumed) == []
                assert running.recv(100) == b"closed"
            running.sendall(b"done")
            with talk.resumed(url, latest.id) as last:
                (answer,) = last
    assert text_of(answer.message) == "done"


def test_a_broken_stream_is_resumed_where_it_broke(url: str) -> None:
    talk = Talk(url)
    with begun(talk, url) as (first, running), talk.resumed(url, first.id) as resumed:
        progress = next(resumed)
        assert progress.message is not None
        assert progress.message["method"] == "notifications/progress"
        running.sendall(b"done")
        (answer,) = resumed
        assert text_of(answer.message) == "done"
    with talk.resumed(url, progress.id) as again:
        assert [event.message for event in again] == [answer.message]


def test_nobody_resumes_the_stream_of_another_session(url: str) -> None:
    talk, stranger = Talk(url), Talk(url)
    with talk.streamed(url, id=5, **call("leaves")) as events:
        (first,) = events
    with stranger.resumed(url, first.id) as resumed:
        (event,) = resumed
    assert event.message is not None
    assert (event.message["id"], event.message["error"]["code"]) == (5, -32603)
    assert "its outcome is unknown, and it was not run again" in event.message["error"]["message"]


def test_resumed_streams_of_a_session_are_limited(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_requests, "MAX_STREAMS", 1)
    talk = Talk(url)
    with begun(talk, url) as (first, _), talk.resumed(url, first.id):
        refused = httpx.get(url, headers=talk.headers | {"last-event-id": first.id}, timeout=DEADLINE_SECONDS)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_the_end_of_a_session_ends_its_resumed_streams(url: str) -> None:
    talk = Talk(url)
    with begun(talk, url) as (first, _), talk.resumed(url, first.id) as resumed:
        next(resumed)
        assert talk.end(url) == 200
        assert list(resumed) == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["leaves", "leaves_in_thread"])
async def test_clients_resume(url: str, name: str) -> None:
    server = ServerConfig(name="closing", transport=HttpTransport(url), protocol="legacy")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider(server) as provider:
            assert (await provider.call(name, {})).text == "answered"
        async with Client(url, mode="legacy") as client:
            result: Any = await client.call_tool(name, {})
            assert result.content[0].text == "answered"


@pytest.mark.anyio
async def test_closing_a_stream_that_cannot_be_resumed_changes_nothing(url: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider(url) as modern, connected(LEAVING) as local:
            for provider in (modern, local):
                for name in ("leaves", "leaves_in_thread"):
                    assert (await provider.call(name, {})).text == "answered"
    opening = http_server.initialize()
    opening["params"]["protocolVersion"] = "2025-06-18"
    async with httpx.AsyncClient(headers=http_server.HEADERS, timeout=DEADLINE_SECONDS) as client:
        opened = await client.post(url, json=opening)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        response = await client.post(url, json={"jsonrpc": "2.0", "id": 1, **call("leaves")}, headers=session)
    assert text_of(http_server.answer(response)) == "answered"


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_calls_in_a_session_leave_as_much_memory_as_events_may_take(
    serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 60_000
    monkeypatch.setattr(event_store, "MAX_SESSION_BYTES", limit)
    url = f"{serving(http_app(LEAVING))}/mcp"

    def calls(count: int) -> int:
        for number in range(count):
            message = {"jsonrpc": "2.0", "id": number, **call("leaves")}
            assert "retry: " in client.post(url, json=message, headers=headers).text
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        headers = http_server.open_session(client, url)
        tracemalloc.start()
        try:
            before = calls(40)
            assert calls(120) - before < limit
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("is_sent", [True, False])
def test_events_of_a_session_that_nobody_uses_expire(
    serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    monkeypatch.setattr(event_store, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(event_store, "DELIVERED_SECONDS" if is_sent else "UNDELIVERED_SECONDS", 0.0)
    monkeypatch.setattr(event_store, "UNDELIVERED_SECONDS" if is_sent else "DELIVERED_SECONDS", 60.0)
    dropped = threading.Event()
    drop = MemoryEvents._drop

    async def noted(self: MemoryEvents, stream_ids: list[str]) -> None:
        await drop(self, stream_ids)
        if not {"1", "5"}.isdisjoint(stream_ids):
            dropped.set()

    monkeypatch.setattr(MemoryEvents, "_drop", noted)
    url = f"{serving(http_app(ToolBox(*TOOLS)))}/mcp"
    talk = Talk(url)
    if is_sent:
        with talk.streamed(url, id=1, **call("slow_sum", token="t", a=1, b=2)) as events:
            (first, *_) = events
    else:
        with begun(talk, url) as (first, running):
            running.sendall(b"done")
    assert dropped.wait(DEADLINE_SECONDS)
    with talk.resumed(url, first.id) as resumed:
        (event,) = resumed
    assert event.message is not None
    assert "no longer stored" in event.message["error"]["message"]
