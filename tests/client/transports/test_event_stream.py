"""Streams of server-sent events whose messages are checked."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.transports import event_stream
from bridge.client.transports.event_stream import EventParser
from bridge.client.transports.received_data import ResponseTooLongError

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


async def expected_of(text: bytes) -> list[bytes]:
    """Data of the messages, as httpx2 reads them."""
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        stream=Chunks([text]),
        request=httpx2.Request("GET", "http://x"),
    )
    events = [event async for event in httpx2.EventSource(response, max_event_size=None)]
    return [event.data.encode() for event in events if event.event == "message" and event.data]


@given(events=EVENTS, seed=st.integers(0, 2**32), is_ended=st.booleans())
async def test_messages_are_the_same_however_they_are_cut(
    events: list[tuple[list[str], bool, str]], seed: int, is_ended: bool
) -> None:
    text = ""
    for lines, is_long, end in events:
        long = [f"data: {'x' * LIMIT}", "data: y"] if is_long else []
        text += end.join([*lines, *long, "", ""])
    text += "" if is_ended else "data: lost"
    reader = EventParser(2**20)
    found = [data for chunk in split(text.encode(), seed) for data in reader.feed(chunk)]
    assert found == await expected_of(text.encode())


@pytest.mark.parametrize("step", [1, 2, 100])
async def test_a_byte_order_mark_at_the_beginning_of_a_stream_is_left_out(step: int) -> None:
    text = b"\xef\xbb\xbfid: 1\ndata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n"
    reader = EventParser(2**16)
    for _ in range(2):
        chunks = [text[start : start + step] for start in range(0, len(text), step)]
        assert [data for chunk in chunks for data in reader.feed(chunk)] == [b"a", b"c"]
        assert reader.last_id == b"1"
        reader.restart()


async def test_an_event_that_is_cut_off_is_none() -> None:
    assert list(EventParser(2**16).feed(b"data: 1\r\rdata: 2\r")) == [b"1"]


async def test_an_event_that_does_not_end_is_kept_no_further_than_the_limit() -> None:
    reader = EventParser(2**16)
    for _ in range(65):
        assert list(reader.feed(b"data: " + b"x" * 1000)) == []
    with pytest.raises(ResponseTooLongError, match=r"an event of its answer is longer than 0\.0625 MiB"):
        list(reader.feed(b"data: " + b"x" * 1000))


async def test_a_complete_event_passes_before_the_next_chunk_is_read() -> None:
    reader = EventParser(2**16)
    assert list(reader.feed(b"data: 1\n\ndata: ")) == [b"1"]
    assert list(reader.feed(b"2\n")) == []
    assert list(reader.feed(b"\n")) == [b"2"]


async def test_what_a_stream_is_resumed_from_is_kept() -> None:
    reader = EventParser(2**16)
    list(reader.feed(b"id: 7\nretry: 1500\n\nid: 8\n\nretry: soon\nid: \0\n\nid: 9\n"))
    assert (reader.last_id, reader.retry_seconds) == (b"8", 1.5)


async def test_an_event_of_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_LINES", 2**17)
    with pytest.raises(ResponseTooLongError, match="an event of its answer has more than 131,072 lines"):
        list(EventParser(2**20).feed(b"data\n" * (2**17 + 2) + b"\n"))
