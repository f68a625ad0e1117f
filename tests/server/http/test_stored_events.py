"""Events of calls in memory: their bounds, their replay, and those who follow them."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Sized
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from bridge.protocol.messages import notification, result_message
from bridge.protocol.replay import StreamPosition, position_of
from bridge.server.http import event_store
from bridge.server.http.event_store import EventBytes, MemoryEvents

DEADLINE_SECONDS = 60

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def report(text: str) -> bytes:
    return notification("notifications/message", {"data": text})


def answer_to(request: int, text: str = "") -> bytes:
    return result_message(request, json.dumps({"text": text}).encode())


def at(event_id: str) -> StreamPosition:
    position = position_of(event_id)
    assert position is not None
    return position


async def replayed(events: MemoryEvents, event_id: str) -> list[tuple[str, bytes]]:
    """Return the events after one of a stream that has ended."""
    with anyio.fail_after(DEADLINE_SECONDS):
        return [event async for event in events.follow(at(event_id)) if event is not None]


def is_lost(events: list[tuple[str, bytes]], request: int | str) -> bool:
    ((event_id, error),) = events
    message = json.loads(error)
    return (event_id, message["id"]) == ("", request) and "no longer stored" in message["error"]["message"]


class Follower:
    """Events after one, which are received as they are stored, up to the end of the stream."""

    def __init__(self, events: MemoryEvents, event_id: str) -> None:
        self.received: list[bytes] = []
        self.has_ended = False
        self._events = events
        self._position = at(event_id)

    async def __call__(self) -> None:
        async for event in self._events.follow(self._position):
            if event is not None:
                self.received.append(event[1])
        self.has_ended = True


async def test_events_are_replayed_and_followed_to_the_response() -> None:
    events = MemoryEvents(EventBytes())
    start = await events.store("5", None)
    stored = [(await events.store("5", report("a"), is_notification=True), report("a"))]
    followers = [Follower(events, start), Follower(events, stored[0][0])]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for each in followers:
                tasks.start_soon(each)
            await anyio.wait_all_tasks_blocked()
            assert [each.received for each in followers] == [[report("a")], []]
            messages = (report("b"), report("c"))
            stored += [(await events.store("5", each, is_notification=True), each) for each in messages]
            await anyio.wait_all_tasks_blocked()
            assert not any(each.has_ended for each in followers)
            stored.append((await events.store("5", answer_to(5), is_answer=True), answer_to(5)))
    assert followers[0].received == [message for _, message in stored]
    assert followers[1].received == [message for _, message in stored[1:]]
    for number, (event_id, _) in enumerate(stored, start=1):
        assert await replayed(events, event_id) == stored[number:]
    assert await replayed(events, "0-0/5") == await replayed(events, start) == stored


async def test_streams_of_a_call_are_closed_and_resumed_after_what_they_had() -> None:
    events = MemoryEvents(EventBytes())
    start, other = await events.store("5", None), await events.store("6", None)
    await events.close_streams("5")
    await events.close_streams("no such call")
    closed, unaffected = Follower(events, start), Follower(events, other)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(closed)
            tasks.start_soon(unaffected)
            await anyio.wait_all_tasks_blocked()
            latest = await events.store("5", report("a"), is_notification=True)
            await events.close_streams("5")
            await anyio.wait_all_tasks_blocked()
            assert (closed.received, closed.has_ended, unaffected.has_ended) == ([report("a")], True, False)
            resumed = Follower(events, latest)
            tasks.start_soon(resumed)
            await anyio.wait_all_tasks_blocked()
            await events.store("5", answer_to(5), is_answer=True)
            await events.store("6", answer_to(6), is_answer=True)
    assert (resumed.received, unaffected.received) == ([answer_to(5)], [answer_to(6)])


async def test_a_stream_without_events_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "KEEP_ALIVE_SECONDS", 0.0)
    events = MemoryEvents(EventBytes())
    start = await events.store("5", None)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with aclosing(events.follow(at(start))) as following:
            assert [await anext(following) for _ in range(3)] == [None] * 3
            answer = await events.store("5", answer_to(5), is_answer=True)
            assert [event async for event in following] == [(answer, answer_to(5))]


@pytest.mark.parametrize("ending", ["drop", "forget"])
async def test_those_who_follow_a_call_whose_events_are_dropped_do_not_wait(ending: str) -> None:
    events = MemoryEvents(EventBytes())
    follower = Follower(events, await events.store("5", None))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower)
            await anyio.wait_all_tasks_blocked()
            if ending == "forget":
                events.forget()
            else:
                await events.drop_all()
    if ending == "drop":
        assert is_lost([("", each) for each in follower.received], 5)
    else:
        assert follower.received == []


async def test_a_session_that_has_ended_stores_nothing() -> None:
    everything = EventBytes()
    events = MemoryEvents(everything)
    events.forget()
    assert await events.store("5", None) == await events.store("5", answer_to(5), is_answer=True) == "0-0/5"
    assert everything.total == events.size == 0
    assert await replayed(events, "0-0/5") == []


async def test_the_events_of_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_SESSION_BYTES", 5_500)
    monkeypatch.setattr(event_store, "MAX_NOTIFICATION_BYTES", 2_000)
    everything = EventBytes()
    events, starts = MemoryEvents(everything), []
    for request in range(5):
        starts.append(await events.store(str(request), None))
        for _ in range(9):
            await events.store(str(request), report("x" * 200), is_notification=True)
        await events.store(str(request), answer_to(request), is_answer=True)
        assert everything.total == events.size <= 5_500
    *reports, (_, answer) = await replayed(events, starts[-1])
    assert (len(reports), answer) == (2, answer_to(4))
    assert is_lost(await replayed(events, starts[0]), 0)
    events.forget()
    assert everything.total == events.size == 0
    assert await replayed(events, starts[-1]) == []


async def test_questions_are_stored_where_notifications_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_NOTIFICATION_BYTES", 0)
    events, question = MemoryEvents(EventBytes()), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    start = await events.store("5", None)
    assert await events.store("5", report("a"), is_notification=True) == start
    asked = await events.store("5", question)
    assert await events.store("5", report("b"), is_notification=True) == asked
    await events.store("5", answer_to(5), is_answer=True)
    assert [message for _, message in await replayed(events, start)] == [question, answer_to(5)]


async def test_of_many_events_of_a_call_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_EVENTS", 3)
    events = MemoryEvents(EventBytes())
    start, *ids = [await events.store("5", text and report(text)) for text in (None, *"abcd")]
    ids.append(await events.store("5", answer_to(5), is_answer=True))
    messages = [report("c"), report("d"), answer_to(5)]
    assert await replayed(events, start) == list(zip(ids[2:], messages, strict=True))
    assert await replayed(events, ids[2]) == list(zip(ids[3:], messages[1:], strict=True))


@pytest.mark.parametrize("kept", ["answers", "reports", "other letters", "running"])
@pytest.mark.parametrize("id_length", [1, 200])
async def test_what_is_kept_counts_for_at_least_the_memory_that_it_takes(kept: str, id_length: int) -> None:
    kinds = {
        "answers": [answer_to(1)],
        "reports": [report("x")] * 20,
        "other letters": [answer_to(1, "\U0001f600" * 100)],
        "running": [],
    }
    events = MemoryEvents(EventBytes())
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(300):
            stream = f"{number:0{id_length}}"
            await events.store(stream, None)
            for message in kinds[kept]:
                await events.store(stream, bytes(bytearray(message)), is_answer=kept != "reports")
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 300 * 100 < taken <= events.size < 4 * taken


async def test_a_long_id_counts_for_each_of_its_copies() -> None:
    events = MemoryEvents(EventBytes())
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(20):
            for message in (None, answer_to(1)):
                await events.store(f"\U0001f600{number:050000}", message, is_answer=message is not None)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= events.size < 2 * taken


@pytest.mark.parametrize("kept", [0, 1])
async def test_dropped_calls_leave_no_memory_however_many_they_were(kept: int) -> None:
    events = MemoryEvents(EventBytes())
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2_000):
            await events.store(str(number), answer_to(number), is_answer=True)
        for number in range(2_000 - kept):
            await events.drop([str(number)])
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 10_000
    assert len(await replayed(events, "0-0/1999")) == 1


async def test_of_all_sessions_the_one_that_has_most_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_BYTES", 9_000)
    everything = EventBytes()
    modest, greedy = MemoryEvents(everything), MemoryEvents(everything)
    start = await modest.store("0", None)
    answer = await modest.store("0", answer_to(0, "x" * 400), is_answer=True)
    for request in range(9):
        await greedy.store(str(request), answer_to(request, "x" * 400), is_answer=True)
    assert everything.total == modest.size + greedy.size <= 9_000
    assert await replayed(modest, start) == [(answer, answer_to(0, "x" * 400))]


async def test_calls_of_other_sessions_are_dropped_that_have_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_BYTES", 9_000)
    everything = EventBytes()
    for _ in range(9):
        await MemoryEvents(everything).store("1", answer_to(1, "x" * 400), is_answer=True)
        assert everything.total <= 9_000


async def test_running_calls_of_one_session_do_not_let_others_keep_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "MAX_BYTES", 9_000)
    everything = EventBytes()
    running, others = MemoryEvents(everything), [MemoryEvents(everything) for _ in range(3)]
    for request in range(3):
        await running.store(str(request), report("x" * 400), is_notification=True)
    for request in range(9):
        for other in others:
            await other.store(str(request), answer_to(request, "x" * 100), is_answer=True)
            assert everything.total <= 9_000
    assert all(other.size < running.size for other in others)


async def test_responses_expire_sent_or_not_and_running_calls_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = EventBytes()
    events = MemoryEvents(everything)
    starts = [await events.store(stream, None) for stream in "123"]
    answers = [await events.store(str(request), answer_to(request), is_answer=True) for request in (1, 2)]
    for _ in range(2):
        assert await events.drop_expired() is False
        assert await replayed(events, starts[0]) == [(answers[0], answer_to(1))]
    async with aclosing(events.follow(at(starts[1]))) as following:  # whose client disconnects during the response
        assert await anext(following) == (answers[1], answer_to(2))
    for number, name in enumerate(("DELIVERED_SECONDS", "UNDELIVERED_SECONDS")):
        monkeypatch.setattr(event_store, name, -1.0)
        assert await events.drop_expired() is True
        assert is_lost(await replayed(events, starts[number]), number + 1)
        assert await events.drop_expired() is False
    answer = await events.store("3", answer_to(3), is_answer=True)
    assert await replayed(events, starts[2]) == [(answer, answer_to(3))]
    await events.drop_expired()
    assert everything.total == 0


async def test_a_response_that_is_sent_again_and_again_is_noted_once() -> None:
    events = MemoryEvents(EventBytes())
    start = await events.store("1", None)
    answer = await events.store("1", answer_to(1), is_answer=True)
    sizes = set()
    for _ in range(100):
        assert await replayed(events, start) == [(answer, answer_to(1))]
        sizes.add(sum(len(each) for each in vars(events).values() if isinstance(each, Sized)))
    assert len(sizes) == 1


async def test_a_response_that_was_sent_leaves_memory_when_it_is_dropped() -> None:
    events, answer = MemoryEvents(EventBytes()), answer_to(1, "x" * (event_store.MAX_SESSION_BYTES + 1))
    references = sys.getrefcount(answer)
    await events.store("1", answer, is_answer=True)
    assert sys.getrefcount(answer) == references + 1  # it is not copied
    await events.delivered("1")
    await events.store("2", answer_to(2), is_answer=True)
    assert sys.getrefcount(answer) == references


async def test_an_id_that_is_used_again_begins_anew() -> None:
    events = MemoryEvents(EventBytes())
    await events.store("1", None)
    await events.store("1", answer_to(1, "first"), is_answer=True)
    start = await events.store("1", None)
    answer = await events.store("1", answer_to(1, "second"), is_answer=True)
    for event_id in (start, "0-0/1"):
        assert await replayed(events, event_id) == [(answer, answer_to(1, "second"))]


async def test_the_stream_of_a_call_that_never_was_ends_with_an_error() -> None:
    assert is_lost(await replayed(MemoryEvents(EventBytes()), "0-99/x"), "x")
