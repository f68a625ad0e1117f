"""Positions at which webhooks begin, whose events a slow or faulty server may have."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from bridge.errors import ToolError
from bridge.events import EventType
from bridge.events.occurrence import EventBatch, EventRequest
from bridge.server.events import beginnings
from bridge.server.events.beginnings import Beginning, beginning_of
from bridge.tools.context import InvocationContext
from tests.server.events.hooks import BOB, SECRET, served
from tests.server.events.receiver import DEADLINE_SECONDS, receiving

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


class Pages:
    """A reader of pages that a function returns, by the number of the request."""

    def __init__(self, page: Callable[[int], EventBatch]) -> None:
        self._page = page
        self.requests = list[str | None]()

    async def poll(self, request: EventRequest, _: object) -> EventBatch:
        self.requests.append(request.cursor)
        await anyio.lowlevel.checkpoint()
        return self._page(len(self.requests))

    def stream(self, *_: object) -> Any:
        raise NotImplementedError


async def begun(reader: Pages) -> Beginning:
    with anyio.fail_after(DEADLINE_SECONDS):
        return await beginning_of(reader, "number", EventRequest(cursor="0"), InvocationContext())


async def test_pages_without_events_are_read_up_to_the_first_one_without_more() -> None:
    reader = Pages(lambda count: EventBatch(cursor=str(count), truncated=True, has_more=count < 3))
    assert await begun(reader) == Beginning("3", truncated=True)
    assert reader.requests == ["0", "1", "2"]


@pytest.mark.parametrize("step", [0, 1])
async def test_pages_without_end_are_refused(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "MAX_PAGES", 5)
    reader = Pages(lambda count: EventBatch(cursor=str(1 + count * step), truncated=True, has_more=True))
    with pytest.raises(ToolError, match="pages without end"):
        await begun(reader)
    assert len(reader.requests) == (5 if step else 2)


async def test_a_position_is_found_within_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "DEADLINE_SECONDS", 0.01)
    monkeypatch.setattr(beginnings, "MAX_PAGES", 10**9)
    reader = Pages(lambda count: EventBatch(cursor=str(count), truncated=True, has_more=True))
    with pytest.raises(ToolError, match="were not read within"):
        await begun(reader)


def test_a_server_that_is_slow_to_give_a_position_does_not_delay_other_callers() -> None:
    asked, is_answered = threading.Event(), threading.Event()

    class Slow(Pages):
        async def poll(self, *_: object) -> EventBatch:
            asked.set()
            await anyio.to_thread.run_sync(is_answered.wait, DEADLINE_SECONDS)
            return EventBatch(cursor="1")

    with receiving() as receiver, served(receiver.url) as (client, server), ThreadPoolExecutor() as threads:
        source: Any = server.features.events
        local = source.local()
        slow = EventType(name="slow", delivery=("poll",), reader=Slow(lambda _: EventBatch()))

        async def types(*_: object) -> tuple[EventType, ...]:
            return (*local, slow)

        source.list = types
        client.subscribe(receiver.url, BOB)
        delivery = {"mode": "webhook", "url": f"{receiver.url}/slow", "secret": SECRET}
        answer = threads.submit(client.ask, "events/subscribe", {"name": "slow", "delivery": delivery})
        try:
            assert asked.wait(DEADLINE_SECONDS)
            assert client.unsubscribe(receiver.url, BOB)["resultType"] == "complete"
        finally:
            is_answered.set()
        assert answer.result()["cursor"] == "1"
