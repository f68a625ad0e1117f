"""Streams of server-sent events whose messages are checked."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.transports import event_stream
from bridge.client.transports.event_stream import CheckedEvents
from bridge.client.transports.limits import ResponseTooLongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LIMIT = 100
LINES = st.sampled_from(
    [": comment", "data: a", "data:b", "data", "data:  c", "id: 1", "id", "event: e", "retry: 5", "x"]
)
EVENTS = st.lists(
    st.tuples(st.lists(LINES, max_size=4), st.booleans(), st.sampled_from(["\n", "\r\n", "\r"])), max_size=6
)


class Chunks(httpx2.AsyncByteStream):
    """A stream of these chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def split(text: bytes, seed: int) -> list[bytes]:
    """Split the text at random positions."""
    dice = random.Random(seed)
    cuts = sorted(dice.randint(0, len(text)) for _ in range(dice.randint(0, 9)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


async def events_of(stream: httpx2.AsyncByteStream) -> list[httpx2.ServerSentEvent]:
    response = httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, stream=stream, request=httpx2.Request("GET", "http://x")
    )
    return [event async for event in httpx2.EventSource(response, max_event_size=None)]


@given(events=EVENTS, seed=st.integers(0, 2**32), is_ended=st.booleans())
async def test_events_are_the_same_however_they_are_cut_but_for_the_data_of_messages(
    events: list[tuple[list[str], bool, str]], seed: int, is_ended: bool
) -> None:
    text = expected = ""
    for lines, is_long, end in events:
        long = [f"data: {'x' * LIMIT}", "data: y"] if is_long else []
        is_replaced = is_long and "event: e" not in lines
        kept = [line for line in lines if not line.startswith("data")] if is_replaced else [*lines, *long]
        text += end.join([*lines, *long, "", ""])
        expected += end.join([*kept, *(["data: short"] if is_replaced else []), "", ""])
    text, expected = (text, expected) if is_ended else (text + "data: lost", expected + "data: lost")
    found = await events_of(CheckedEvents(Chunks(split(text.encode(), seed)), shortened, 2**20))
    assert found == await events_of(Chunks([expected.encode()]))


def shortened(data: bytes) -> bytes:
    if len(data) < LIMIT:
        assert data.strip(b"abc \n") == b""
        return data
    assert data.endswith(b"x" * LIMIT + b"\ny")
    return b"short"


async def test_an_event_that_is_cut_off_is_none() -> None:
    assert await events_of(CheckedEvents(Chunks([b"data: 1\r\rdata: 2\r"]), lambda data: data, 2**16)) == [
        httpx2.ServerSentEvent(data="1")
    ]


async def test_an_event_that_does_not_end_is_kept_no_further_than_the_limit() -> None:
    stream = CheckedEvents(Chunks([b"data: " + b"x" * 1000] * 1000), lambda data: data, 2**16)
    read: list[bytes] = []
    with pytest.raises(ResponseTooLongError, match=r"an event of its answer is longer than 0\.0625 MiB"):
        read.extend([chunk async for chunk in stream])
    assert not read


async def test_a_complete_event_passes_before_the_next_chunk_is_read() -> None:
    chunks = aiter(CheckedEvents(Chunks([b"data: 1\n\ndata: ", b"2\n", b"\n"]), lambda data: data, 2**16))
    assert await anext(chunks) == b"data: 1\n\n"
    assert await anext(chunks) == b"data: 2\n\n"


async def test_an_event_of_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_LINES", 2**17)
    stream = CheckedEvents(Chunks([b"data\n" * 2**17 + b"\n"]), lambda data: data, 2**20)
    with pytest.raises(ResponseTooLongError, match="an event of its answer has more than 131,072 lines"):
        await events_of(stream)
