"""Bytes and objects of a server over HTTP that are no body: heads, chunk sizes, trailers, and tiny chunks."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from bridge import HttpTransport, ServerConfig, ServerError
from bridge.client import Connection
from bridge.errors import BridgeError, OutcomeUnknownError, ServerAuthError, ServerRefusedError
from tests.client.conftest import DEADLINE_SECONDS
from tests.client.http_client import sent_by
from tests.client.raw_http import DONE, MODERN, Request, event, http, json_of, opened, raw_server, response
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from starlette.requests import Request as StarletteRequest

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
FLOOD_BYTES = 16 * 2**20
READ_BYTES = 8 * 2**20
"""More than the buffers of two sockets hold."""
TEXT_CHARS = 200_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON, EVENTS = HEAD % b"application/json", HEAD % b"text/event-stream"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def flood(beginning: bytes, piece: bytes) -> Callable[[Request], Sequence[bytes]]:
    """Answer with much more than is read."""
    block = piece * (65536 // len(piece))
    return lambda _: [beginning, *[block] * (FLOOD_BYTES // len(block))]


@ERAS
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b"),
        (JSON + b"0\r\n", b"A: b\r\n"),
        (JSON + b"2\r\n{}\r\n0\r\nA: ", b"b"),
        (JSON + b"2;", b"a=b;"),
        (EVENTS + b"0\r\n", b"A: b\r\n"),
        (EVENTS + b"8\r\n: ping\n\n\r\n8;", b"a=b;"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
    ],
    ids=["headers", "a header", "trailers", "a trailer", "extension", "events", "event", "refused"],
)
async def test_what_is_no_body_is_read_up_to_a_limit(beginning: bytes, piece: bytes, own: bool, era: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            raw_server(era, flood(beginning, piece)) as server,
            opened(sent_by(server.config(), own=own)) as connection,
        ):
            with pytest.raises(BridgeError):
                await connection.call_tool("add", {})
            await server.lost.wait()
    assert server.sent_bytes < READ_BYTES


async def test_interim_responses_are_read_up_to_a_limit() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            raw_server("legacy", flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")) as server,
            opened(server.config()) as connection,
        ):
            with pytest.raises(OutcomeUnknownError, match="too long"):
                await connection.call_tool("add", {})
            await server.lost.wait()


async def test_trailers_are_no_headers_of_the_next_response() -> None:
    def answer(request: Request) -> list[bytes]:
        text = json.dumps(response(request.call_id, DONE)).encode()
        if len(server.calls) > 1:
            return [http(200, text, Content_Type="application/json")]
        return [JSON + b"%x\r\n%b\r\n0\r\nContent-Encoding: br\r\n\r\n" % (len(text), text)]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        for _ in range(2):
            assert (await connection.call_tool("add", {}))["content"] == DONE["content"]
        assert len({call.connection for call in server.calls}) == 1


async def test_bytes_between_responses_close_the_connection() -> None:
    is_answered = asyncio.Event()

    def answer(request: Request) -> list[bytes | asyncio.Event | None]:
        return [json_of(request.call_id, DONE), is_answered, b"\r\n", asyncio.Event()]

    with anyio.fail_after(DEADLINE_SECONDS):
        async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
            await connection.call_tool("add", {})
            is_answered.set()
            await server.lost.wait()


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """Memory that Python took at most, in bytes, since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def in_tiny_chunks(head: bytes, text: bytes) -> list[bytes]:
    pieces = b"".join(b"2\r\n%b\r\n" % text[start : start + 2] for start in range(0, len(text), 2))
    return [head, *(pieces[start : start + 65536] for start in range(0, len(pieces), 65536)), b"0\r\n\r\n"]


@pytest.mark.parametrize("form", ["json", "events"])
async def test_tiny_chunks_take_no_more_memory_than_their_bytes(form: str, peak: Callable[[], int]) -> None:
    result = {"content": [{"type": "text", "text": "x" * TEXT_CHARS}]}

    def answer(request: Request) -> list[bytes]:
        message = response(request.call_id, result)
        text = json.dumps(message).encode() if form == "json" else event(message)
        pieces = in_tiny_chunks(JSON if form == "json" else EVENTS, text + b" " * (len(text) % 2))
        tracemalloc.reset_peak()
        return pieces

    with anyio.fail_after(DEADLINE_SECONDS):
        async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
            before = tracemalloc.get_traced_memory()[0]
            assert (await connection.call_tool("add", {}))["content"] == result["content"]
    assert peak() - before < 20 * TEXT_CHARS  # a chunk of its own takes 35 bytes for two


def without_end(piece: bytes, **headers: str) -> list[bytes | asyncio.Event]:
    return [http(200, piece, **headers).replace(b"Content-Length: ", b"Content-Length: 9"), asyncio.Event()]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("encoding 'br'", without_end(b"x" * 9, Content_Type="text/event-stream", Content_Encoding="br")),
        ("longer than", [JSON, *[b"%x\r\n%b\r\n" % (2**20, b"x" * 2**20)] * 65, asyncio.Event()]),
    ],
)
async def test_a_response_that_cannot_be_read_closes_its_connection(words: str, answer: Any) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with raw_server("legacy", lambda _: answer) as server, opened(server.config()) as connection:
            with pytest.raises(BridgeError, match=words):
                await connection.call_tool("add", {})
            await server.lost.wait()


# --- the reason of a refusal -----------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("media_type", "body", "words"),
    [
        ("application/json", b'{"error": "quota of team 7 is used up"}', "quota of team 7 is used up"),
        ("application/json", b'{"error": {"code": 9, "message": "no such plan"}}', "no such plan"),
        ("application/problem+json", b'{"title": "Blocked", "detail": "by policy 12"}', "by policy 12"),
        ("application/json; charset=utf-8", b'{"detail": [{"loc": ["x"], "msg": "a", "message": "b"}]}', "b"),
        ("text/plain", b"the key\r\n\x1b[31mhas expired", r"the key \\x1b\[31mhas expired"),
        ("text/plain", b'{"message": "as a text"}', "as a text"),
        ("text/html", b"<html><head><title>Access &amp; login</title></head></html>", "Access & login"),
        ("text/html", b"<html><body class='x'><h1>Over quota</h1></body></html>", "Over quota"),
        ("text/html", b"<body>Over quota</body>", "Over quota"),
        ("application/json", b"upstream is full", "upstream is full"),
        ("application/json", b'{"detail": [{"loc": ["x"], "msg": "no such plan"}]}', "no such plan"),
        ("text/event-stream", b"data: nothing\n\n", "Server returned an error response"),
        ("application/json", b'{"a": {"message": "x"}}', "Server returned an error response"),
    ],
)
async def test_a_refusal_has_the_reason_of_its_body(
    media_type: str, body: bytes, words: str, own: bool, era: str
) -> None:
    answer = http(403, body, Content_Type=media_type)
    async with (
        raw_server(era, lambda _: [answer]) as server,
        opened(sent_by(server.config(), own=own)) as connection,
    ):
        with pytest.raises(ServerRefusedError, match=rf": {words} \(-32603\), HTTP 403") as error:
            await connection.call_tool("add", {})
    assert "\x1b" not in error.value.message


REFUSED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "over quota"}}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"error": "over quota"}, "HTTP 400: over quota"),
        (400, REFUSED, "HTTP 400: over quota"),
        (404, {"detail": "no such tenant"}, "no MCP server at this URL (HTTP 404): no such tenant"),
        (404, {"detail": "Not Found"}, "no MCP server at this URL (HTTP 405)"),
    ],
)
async def test_a_refused_handshake_has_the_reason_although_the_other_transport_was_tried(
    status: int, body: Any, reason: str
) -> None:
    async def refuse(_: StarletteRequest) -> JSONResponse:
        return JSONResponse(body, status)

    app = Starlette(routes=[Route("/mcp", refuse, methods=["POST"])])
    with serving(app) as origin, pytest.raises(ServerError) as caught:
        await Connection(ServerConfig(name="s", transport=HttpTransport(f"{origin}/mcp"))).open()
    assert caught.value.failure.reason == reason


@ERAS
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("headers", [{"Content_Length": "99"}, {"Content_Encoding": "gzip"}], ids=["cut", "spoiled"])
async def test_a_refusal_is_reported_though_its_body_cannot_be_read(
    headers: dict[str, str], own: bool, era: str
) -> None:
    answer = http(401, b'{"jsonrpc": "2.0"}', Content_Type="application/json", **headers)
    async with raw_server(era, lambda _: [answer, None]) as server:
        config = server.config()
        config = replace(config, transport=config.transport.with_headers({"Authorization": "Bearer key"}))
        async with opened(sent_by(config, own=own)) as connection:
            with pytest.raises(ServerAuthError, match=r"it asks for credentials \(HTTP 401\)"):
                await connection.call_tool("add", {})


@ERAS
async def test_a_refusal_is_reported_though_its_body_never_ends(era: str) -> None:
    block = b"10000\r\n%b\r\n" % (b"no " * 21845 + b".")
    head = b"HTTP/1.1 403 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            raw_server(era, lambda _: [head, *[block] * (FLOOD_BYTES // 65536)]) as server,
            opened(server.config()) as connection,
        ):
            with pytest.raises(ServerRefusedError, match="no no no"):
                await connection.call_tool("add", {})
            await server.lost.wait()
    assert server.sent_bytes < READ_BYTES


async def test_a_length_of_thousands_of_digits_is_read_and_leaks_no_connection() -> None:
    large = {"content": [{"type": "text", "text": "x" * 300_000}]}

    def answer(request: Request) -> list[bytes]:
        return [json_of(request.call_id, large).replace(b"Content-Length: ", b"Content-Length: " + b"0" * 5000)]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        for _ in range(3):
            assert (await connection.call_tool("add", {}))["content"] == large["content"]
        assert len({call.connection for call in server.calls}) == 1


async def test_a_response_whose_end_is_lost_leaves_the_outcome_unknown() -> None:
    async with (
        raw_server("legacy", lambda _: [JSON + b"5\r\n{", None]) as server,
        opened(server.config()) as connection,
    ):
        with pytest.raises(OutcomeUnknownError):
            await connection.call_tool("add", {})
