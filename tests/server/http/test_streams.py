from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.server import http_app
from bridge.server.http.streams import OpenStreams
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_server import events, modern, modern_headers, open_session, request
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_SECONDS = 10
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


@pytest.mark.anyio
async def test_a_stream_that_is_ended_is_closed_in_order() -> None:
    streams, sent, started = OpenStreams(), [], anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        started.set()
        assert (await receive())["type"] == "http.disconnect"

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        await anyio.sleep_forever()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(streams.run, app, {}, receive, send)
            await started.wait()
            assert len(streams) == 1
            streams.end()
    assert sent == ["http.response.start", "http.response.body"]
    assert len(streams) == 0


@pytest.mark.anyio
async def test_a_stream_that_ended_by_itself_is_left_alone() -> None:
    streams, sent = OpenStreams(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    await streams.run(app, {}, receive, send)
    streams.end()
    assert len(sent) == 2
