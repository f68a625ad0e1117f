"""Streams of calls that are closed early or break, and are resumed; without replicas."""

from __future__ import annotations

import gc
import socket
import threading
import tracemalloc
import weakref
from collections.abc import Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp_types import JSONRPCNotification, JSONRPCResponse, jsonrpc_message_adapter

from bridge import InvocationContext, McpToolProvider, ToolBox, tool
from bridge.client.config.servers import ServerConfig
from bridge.client.transports.http import HttpTransport
from bridge.server import http_app
from bridge.server.http import event_store, streamable
from bridge.server.http.event_store import EventBytes, MemoryEvents
from bridge.testing import connected
from tests.server import http_server
from tests.server.cluster.speaking import Talk, call, closed_by, report, text_of
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.cluster.speaking import Event

DEADLINE_SECONDS = 20


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


@pytest.fixture(params=[True, False], ids=["fast", "sdk"])
def url(request: pytest.FixtureRequest, serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(streamable, "RETRY_MILLISECONDS", 10)
    app = http_app(ToolBox(*TOOLS, *LEAVING), fast_path=request.param)
    return f"{serving(app)}/mcp"


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
    assert [name for name, _ in lines] == ["id", "data", "retry"]
    assert dict(lines) == {"id": dict(lines)["id"], "data": " ", "retry": " 10"}


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
    monkeypatch.setattr(streamable, "MAX_STREAMS", 1)
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
    talk = Talk(url)
    talk.headers["mcp-protocol-version"] = "2025-06-18"
    with talk.streamed(url, id=1, **call("leaves")) as events:
        (answer,) = events
        assert text_of(answer.message) == "answered"


# --- what is kept ----------------------------------------------------------------------------------------------------


def notification(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


def answer_to(request: int, text: str = "") -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request, result={"text": text})


async def replayed(events: MemoryEvents, event_id: str) -> list[Any]:
    """Return the messages after an event of a stream that has ended."""
    messages: list[Any] = []

    async def keep(event: Any) -> None:
        messages.append(event.message)

    with anyio.fail_after(DEADLINE_SECONDS):
        assert await events.replay_events_after(event_id, keep) is None
    return messages


@pytest.mark.anyio
async def test_the_events_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_SESSION_BYTES", 5_500)
    monkeypatch.setattr(event_store, "MAX_NOTIFICATION_BYTES", 2_000)
    everything = EventBytes()
    events, starts = MemoryEvents(everything), []
    for request in range(5):
        starts.append(await events.store_event(str(request), None))
        for _ in range(9):
            await events.store_event(str(request), notification("x" * 200))
        await events.store_event(str(request), answer_to(request))
        assert everything.total == events.size <= 5_500
    *reports, answer = await replayed(events, starts[-1])
    assert (len(reports), answer) == (2, answer_to(4))
    (error,) = await replayed(events, starts[0])
    assert error.id == 0
    assert "no longer stored" in error.error.message
    events.forget()
    assert everything.total == events.size == 0
    assert await replayed(events, starts[-1]) == []


@pytest.mark.anyio
@pytest.mark.parametrize("kept", ["answers", "objects", "reports", "other letters", "running"])
@pytest.mark.parametrize("id_length", [1, 200])
async def test_what_is_kept_counts_for_at_least_the_memory_that_it_takes(kept: str, id_length: int) -> None:
    kinds: dict[str, list[Any]] = {
        "answers": [answer_to(1)],
        "objects": [JSONRPCResponse(jsonrpc="2.0", id=1, result={"lists": [[]] * 500})],
        "reports": [notification("x")] * 20,
        "other letters": [answer_to(1, "\U0001f600" * 100)],
        "running": [],
    }
    events = MemoryEvents(EventBytes())
    texts = [message.model_dump_json(by_alias=True, exclude_unset=True) for message in kinds[kept]]
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(300):
            stream = f"{number:0{id_length}}"
            await events.store_event(stream, None)
            for text in texts:
                await events.store_event(stream, jsonrpc_message_adapter.validate_json(text, by_name=False))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 300 * 100 < taken <= events.size < 4 * taken


def test_calls_in_a_session_leave_as_much_memory_as_events_may_take(
    serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 60_000
    monkeypatch.setattr(event_store, "MAX_SESSION_BYTES", limit)
    url = f"{serving(http_app(LEAVING, fast_path=False))}/mcp"

    def calls(count: int) -> int:
        for number in range(count):
            response = client.post(url, json=http_server.request("ping", request_id=number), headers=headers)
            assert "data: {" in response.text
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


@pytest.mark.anyio
async def test_of_all_sessions_the_one_that_has_most_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_BYTES", 9_000)
    everything = EventBytes()
    modest, greedy = MemoryEvents(everything), MemoryEvents(everything)
    start = await modest.store_event("0", None)
    await modest.store_event("0", answer_to(0, "x" * 400))
    for request in range(9):
        await greedy.store_event(str(request), answer_to(request, "x" * 400))
    assert everything.total == modest.size + greedy.size <= 9_000
    assert await replayed(modest, start) == [answer_to(0, "x" * 400)]


@pytest.mark.anyio
async def test_responses_expire_sent_or_not_and_running_calls_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = EventBytes()
    events = MemoryEvents(everything)
    starts = [await events.store_event(stream, None) for stream in "123"]
    await events.store_event("1", answer_to(1))
    await events.delivered("1")
    await events.store_event("2", answer_to(2))
    for _ in range(2):
        assert await events.drop_expired() is False
        assert await replayed(events, starts[0]) == [answer_to(1)]
    for number, name in enumerate(("DELIVERED_SECONDS", "UNDELIVERED_SECONDS")):
        monkeypatch.setattr(event_store, name, -1.0)
        assert await events.drop_expired() is True
        (error,) = await replayed(events, starts[number])
        assert "no longer stored" in error.error.message
        assert await events.drop_expired() is False
    await events.store_event("3", answer_to(3))
    assert await replayed(events, starts[2]) == [answer_to(3)]
    await events.drop_expired()
    assert everything.total == 0


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
    url = f"{serving(http_app(ToolBox(*TOOLS), fast_path=False))}/mcp"
    talk = Talk(url)
    if is_sent:
        with talk.streamed(url, id=1, **call("no_such_tool")) as events:
            (first, *_) = events
    else:
        with begun(talk, url) as (first, running):
            running.sendall(b"done")
    assert dropped.wait(DEADLINE_SECONDS)
    with talk.resumed(url, first.id) as resumed:
        (event,) = resumed
    assert event.message is not None
    assert "no longer stored" in event.message["error"]["message"]


@pytest.mark.anyio
async def test_a_response_that_is_sent_again_and_again_is_noted_once() -> None:
    events = MemoryEvents(EventBytes())
    start = await events.store_event("1", None)
    await events.store_event("1", answer_to(1))
    sizes = set()
    for _ in range(100):
        assert await replayed(events, start) == [answer_to(1)]
        sizes.add(sum(len(each) for each in vars(events).values() if isinstance(each, Sized)))
    assert len(sizes) == 1


@pytest.mark.anyio
async def test_a_response_that_was_sent_leaves_memory_when_it_is_dropped() -> None:
    events, answer = MemoryEvents(EventBytes()), answer_to(1, "x" * (event_store.MAX_SESSION_BYTES + 1))
    response = weakref.ref(answer)
    await events.store_event("1", answer)
    await events.delivered("1")
    await events.store_event("2", answer_to(2))
    del answer
    gc.collect()
    assert response() is None


@pytest.mark.anyio
async def test_an_id_that_is_used_again_begins_anew() -> None:
    events = MemoryEvents(EventBytes())
    await events.store_event("1", None)
    await events.store_event("1", answer_to(1, "first"))
    start = await events.store_event("1", None)
    await events.store_event("1", answer_to(1, "second"))
    assert await replayed(events, start) == [answer_to(1, "second")]
    assert await replayed(events, "0-0/1") == [answer_to(1, "second")]


@pytest.mark.anyio
@pytest.mark.parametrize("event_id", ["", "nonsense", "0-0/_GET_stream", "0-99/x"])
async def test_an_event_that_never_was_is_refused(event_id: str) -> None:
    messages = await replayed(MemoryEvents(EventBytes()), event_id)
    assert len(messages) == (event_id == "0-99/x")
