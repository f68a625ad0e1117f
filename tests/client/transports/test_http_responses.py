"""Responses over own connections have the outcome that they have by the HTTP client."""

from __future__ import annotations

import gzip
import json
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from bridge.errors import OutcomeUnknownError
from bridge.tools.context import InvocationContext
from tests.client.mutated_answers import Answer, Pair
from tests.client.raw_http import (
    DONE,
    MODERN,
    Heard,
    Request,
    event,
    http,
    json_of,
    opened,
    progress,
    raw_server,
    response,
    stream,
)

pytestmark = pytest.mark.anyio
ANSWERS = settings().max_examples
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # own connections need it


@ERAS
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
async def test_progress_and_the_response_are_read_from_events(era: str, newline: str) -> None:
    def answer(request: Request) -> list[bytes | None]:
        events = event(None, id="1", newline=newline) + event(progress(request.token, 1), newline=newline)
        events += event(response(request.call_id, DONE), event="message", newline=newline)
        return stream(*(events[place : place + 7] for place in range(0, len(events), 7)))

    heard = Heard()
    async with raw_server(era, answer) as server, opened(server.config()) as connection:
        assert (await connection.call_tool("add", {}, context=InvocationContext(channel=heard)))["content"] == DONE[
            "content"
        ]
        await connection.call_tool("add", {})
    first, second = server.calls
    assert first.connection == second.connection
    assert heard.progressed == [(1.0, 2.0, "on")]


async def test_line_ends_of_an_event_may_differ() -> None:
    def answer(request: Request) -> list[bytes | None]:
        text = event(response(request.call_id, DONE)).replace(b"\n\n", b"\n\r\n")
        return [stream(text, chunked=False)[0], text]  # the stream stays open

    async with raw_server("legacy", answer) as server, opened(server.config(timeout_seconds=5)) as connection:
        assert (await connection.call_tool("add", {}))["content"] == DONE["content"]


async def test_messages_before_a_response_arrive_once_and_in_order() -> None:
    """A log message, progress after it, and a response: each arrives once."""

    def answer(request: Request) -> list[bytes | None]:
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "half"}}
        told = [progress(request.token, 1), log, progress(request.token, 2), response(request.call_id, DONE)]
        return stream(*map(event, told))

    heard = Heard()
    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        assert (await connection.call_tool("add", {}, context=InvocationContext(channel=heard)))["content"] == DONE[
            "content"
        ]
    assert [value for value, _, _ in heard.progressed] == [1.0, 2.0]
    assert heard.logged == ["half"]
    assert [each.message.get("method") for each in server.requests].count("tools/call") == 1


@pytest.mark.parametrize("last_id", ["e2", "é", " e2\t"])
async def test_a_stream_that_is_cut_off_is_resumed_after_its_last_event(last_id: str) -> None:
    def answer(request: Request) -> list[bytes | None]:
        if request.method == "GET":
            return stream(event(response(ids[0], DONE)))
        ids.append(request.call_id)
        return stream(event(progress(request.token, 1), id="e1"), event(None, id=last_id, retry="1"), None)

    ids: list[Any] = []
    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        assert (await connection.call_tool("add", {}))["content"] == DONE["content"]
    (resumed,) = [each.headers["last-event-id"] for each in server.requests if "last-event-id" in each.headers]
    assert resumed.encode("latin-1").decode() == last_id.strip()


async def test_compressed_and_large_results_are_read() -> None:
    large = {"content": [{"type": "text", "text": "x" * 300_000}]}

    def answer(request: Request) -> list[bytes | None]:
        body = gzip.compress(json.dumps(response(request.call_id, large)).encode())
        return [http(200, body, Content_Type="application/json", Content_Encoding="gzip")]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        assert await connection.call_tool("add", {}) == large


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (http(200, b"x" * 9, Content_Type="application/json", Content_Encoding="br"), "encoding 'br'"),
        (http(200, b"x" * 9, Content_Type="application/json", Content_Encoding="gzip"), "not gzip"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "trailers of its response are too long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "transfer encoding 'gzip, chunked'"),
        (b"SSH-2.0-OpenSSH\r\n", "is not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "another protocol"),
    ],
)
async def test_a_response_that_is_not_http_leaves_the_outcome_unknown(piece: bytes, words: str) -> None:
    async with raw_server("legacy", lambda _: [piece, None]) as server, opened(server.config()) as connection:
        with pytest.raises(OutcomeUnknownError, match=words):
            await connection.call_tool("add", {})


async def test_an_interim_response_is_skipped() -> None:
    async with (
        raw_server("legacy", lambda request: [http(103, b"")[:-2] + b"\r\n", json_of(request.call_id, DONE)]) as server,
        opened(server.config()) as connection,
    ):
        assert (await connection.call_tool("add", {}))["content"] == DONE["content"]


async def test_bytes_behind_a_response_are_no_response() -> None:
    def answer(request: Request) -> list[bytes | None]:
        return [json_of(request.call_id, DONE) + json_of(request.call_id + 1, {"content": []})]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        for _ in range(2):
            assert (await connection.call_tool("add", {}))["content"] == DONE["content"]


# --- the same outcome by the HTTP client -----------------------------------------------------------------------------


GOOD = Answer(
    200, "application/json", [], "length", {"result": DONE}, None, [], [], [], "\n", "python", 200, None, False
)
FOUND = [
    GOOD._replace(status=404, body={"error": {"code": -32601, "message": "no such tool"}}),
    GOOD._replace(headers=["Content-Type: text/plain"], size=1),
    GOOD._replace(headers=["Content-Encoding: identity", "Content-Encoding: br"]),
    GOOD._replace(body={"result": DONE, "method": None}),
    GOOD._replace(status=202, framing="longer"),
    GOOD._replace(status=401),
    GOOD._replace(media="text/event-stream", headers=["Content-Type: text/plain"], framing="longer", size=7),
]
"""Responses whose outcomes once differed."""


@ERAS
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer key"}], ids=["login", "key"])
async def test_every_answer_has_the_same_outcome_by_the_http_client(era: str, headers: dict[str, str]) -> None:
    """Random responses; `make fuzz FUZZ=answers` tries thousands."""
    async with Pair.serving(era, **headers) as pair:
        for answer in [*FOUND, *(Answer.of(Random(seed)) for seed in range(ANSWERS))]:
            own, by_client = await pair.outcomes(answer)
            assert own == by_client, answer
