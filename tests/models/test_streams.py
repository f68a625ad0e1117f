"""Streams in other pieces than the API documents: one body of tests for every adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bridge.service.chat_model import CompleteResponse
from tests.models import anthropic_wire, bedrock_wire, openai_wire
from tests.models.provider import EVENT_STREAM, Answer, cuts, server_sent, single_bytes
from tests.models.requests import ADD, asking, events_of, events_until_error

if TYPE_CHECKING:
    from bridge.models.provider import ProviderChatModel
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[[], "ProviderChatModel"]

REQUEST = asking("Hello", tool_specifications=(ADD,))
EVENTS = {
    "openai": [
        server_sent([event])
        for event in (
            openai_wire.chunk({"content": "ö🦊"}),
            openai_wire.chunk(openai_wire.call(0, '{"a":"ß"}', "add", "x")),
            openai_wire.chunk(reason="tool_calls"),
        )
    ],
    "anthropic": [
        server_sent([event], named=True)
        for event in anthropic_wire.message_events(
            anthropic_wire.block_events(0, anthropic_wire.text(""), {"type": "text_delta", "text": "ö🦊"}),
            anthropic_wire.block_events(
                1, anthropic_wire.use("x", "add", {}), {"type": "input_json_delta", "partial_json": '{"a":"ß"}'}
            ),
        )
    ],
    "bedrock": bedrock_wire.stream_events(
        bedrock_wire.said(0, {"text": "ö🦊"}), bedrock_wire.call(1, "x", "add", '{"a":1}')
    )[:-1],
}
"""Return the events of a reply; the last one completes it."""
HEADERS = {"openai": EVENT_STREAM, "anthropic": EVENT_STREAM, "bedrock": bedrock_wire.EVENTS}


async def test_a_stream_may_be_cut_at_any_byte(provider: Provider, name: str, make: Maker) -> None:
    stream = b"".join(EVENTS[name])
    ways = [*cuts(stream), single_bytes(stream)]
    provider.will_answer(*(Answer(headers=HEADERS[name], chunks=chunks) for chunks in [(stream,), *ways]))
    adapter = make()
    expected = await events_of(adapter, REQUEST)
    for chunks in ways:
        assert b"".join(chunks) == stream
        assert await events_of(adapter, REQUEST) == expected


async def test_a_stream_that_ends_before_the_reply_does_is_an_error(provider: Provider, name: str, make: Maker) -> None:
    for length in range(len(EVENTS[name])):
        stream = b"".join(EVENTS[name][:length])
        provider.will_answer(Answer(headers=HEADERS[name], chunks=(stream,) if stream else ()))
        events, error = await events_until_error(make(), REQUEST)
        assert not any(isinstance(event, CompleteResponse) for event in events)
        assert str(error) == f"{name}: the stream ended before the reply was complete"
        assert error.retryable


SOMETHING_ELSE = {
    "openai": [b"data: {not json}\n\n", b"data: \xff\xfe\n\n", b"data: [1]\n\n", b'data: "x"\n\n'],
    "anthropic": [
        b"event: message_start\ndata: {not json}\n\n",
        b"event: message_start\ndata: \xff\xfe\n\n",
        b"event: message_start\ndata: [1]\n\n",
        server_sent(
            [{"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}], named=True
        ),
    ],
    "bedrock": [b"no event stream at all, but long enough to look", b"\x00" * 64],
}


async def test_a_stream_of_something_else_is_an_error(provider: Provider, name: str, make: Maker) -> None:
    for stream in SOMETHING_ELSE[name]:
        provider.will_answer(Answer(headers=HEADERS[name], chunks=(stream,)))
        events, error = await events_until_error(make(), REQUEST)
        assert (events, error.provider) == ([], name)
        assert f"{name}: the " in str(error) or name == "bedrock"
