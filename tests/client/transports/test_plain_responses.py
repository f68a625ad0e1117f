"""Responses to plain requests have the outcome that they have over the SDK's session."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.connection.call import CallOptions
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerError,
    ServerRefusedError,
)
from bridge.tools.context import InvocationContext
from tests.client.conftest import DEADLINE_SECONDS
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

if TYPE_CHECKING:
    from bridge.client.connection.connection import Connection

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # plain requests need it


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


async def test_the_sdk_reads_on_where_events_are_not_plain() -> None:
    """A log message, progress after it, and a response: none is lost, none comes twice."""

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


async def test_a_stream_that_is_cut_off_is_resumed_after_its_last_event() -> None:
    def answer(request: Request) -> list[bytes | None]:
        if request.method == "GET":
            return stream(event(response(ids[0], DONE)))
        ids.append(request.call_id)
        return stream(event(progress(request.token, 1), id="e1"), event(None, id="e2", retry="1"), None)

    ids: list[Any] = []
    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        assert (await connection.call_tool("add", {}))["content"] == DONE["content"]
    assert [each.headers["last-event-id"] for each in server.requests if "last-event-id" in each.headers] == ["e2"]


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
        (http(200, b"x" * 9, Content_Type="application/json", Content_Encoding="gzip"), "no gzip"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "headers of the response are too long"),
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


# --- the same outcome as over the SDK --------------------------------------------------------------------------------

RESULTS: list[Any] = [
    DONE,
    {**DONE, "structuredContent": {"a": [1, None]}, "_meta": {"x": 1}},
    {**DONE, "isError": True},
    {**DONE, "unknown": 1, "ttlMs": -5},
    {"content": "no list"},
    {"content": [{"type": "nonsense"}]},
    {},
    {"resultType": "input_required", "requestState": "s", "inputRequests": {}},
]
ERRORS: list[Any] = [
    {"code": -32602, "message": "no such tool", "data": [1]},
    {"code": -32000, "message": "Connection closed"},
    {"code": "x", "message": "bad"},
    {"code": 1},
    None,
]
BODIES: list[Any] = [*({"result": each} for each in RESULTS), *({"error": each} for each in ERRORS)]
TEXTS = [b"", b"null", b"[]", b"{", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'"text"']


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    media: str
    framing: str
    body: Any
    asides: list[str]
    newline: str
    size: int
    kept: float | None
    is_compressed: bool

    def pieces(self, request: Request) -> list[bytes | None]:
        """The pieces of the answer to a request."""
        text = self._text(request)
        head = f"HTTP/1.1 {self.status} X\r\n" + (f"Content-Type: {self.media}\r\n" if self.media else "")
        if self.is_compressed:
            text = gzip.compress(text, mtime=0)
            head += "Content-Encoding: gzip\r\n"
        if self.status == 204:
            return [f"{head}\r\n".encode()]
        if self.framing == "length":
            whole = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
        elif self.framing == "chunked":
            chunks = [text[place : place + self.size] for place in range(0, len(text), self.size)]
            whole = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
            whole += b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        else:
            whole = f"{head}\r\n".encode() + text
        if self.kept is not None:
            # The IDs of both paths differ in length, so the same part of the head is kept, or of the body.
            # llhttp ends the headers at their last carriage return, h11 at the line feed behind it.
            head_bytes = whole.index(b"\r\n\r\n") + 4
            body_bytes = max(0.0, 2 * self.kept - 1) * (len(whole) - head_bytes)
            whole = whole[: int(min(1, 2 * self.kept) * head_bytes) + int(body_bytes)].removesuffix(b"\r")
        parts = [whole[place : place + self.size * 3] for place in range(0, len(whole), self.size * 3)]
        return [*parts, *([None] if self.kept is not None or self.framing == "close" else [])]

    def _text(self, request: Request) -> bytes:
        if isinstance(self.body, bytes):
            text = self.body
        else:
            text = json.dumps({"jsonrpc": "2.0", "id": request.call_id, **self.body}).encode()
        if "event" not in self.media:
            return text
        last = b"data: " + text + self.newline.encode() * 2 if text.strip() else b""
        return b"".join(self._aside(kind, request) for kind in self.asides) + last

    def _aside(self, kind: str, request: Request) -> bytes:
        if kind == "comment":
            return f": ping{self.newline * 2}".encode()
        if kind == "priming":
            return event(None, newline=self.newline)
        if kind == "other":
            return event({"a": 1}, newline=self.newline, event="other")
        value = 10**400 if kind == "huge" else 1  # no float can represent it
        return event(progress("else" if kind == "foreign" else request.token, value), newline=self.newline)


ANSWERS = st.builds(
    Answer,
    status=st.sampled_from([200, 200, 200, 200, 201, 204, 400, 403, 404, 405, 429, 500, 502, 503]),
    media=st.sampled_from(["application/json", "text/event-stream", "Application/JSON; charset=utf-8", "text/x", ""]),
    framing=st.sampled_from(["length", "chunked", "close"]),
    body=st.sampled_from(BODIES) | st.sampled_from(TEXTS),
    asides=st.lists(st.sampled_from(["progress", "huge", "foreign", "comment", "priming", "other"]), max_size=3),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 200),
    kept=st.none() | st.none() | st.floats(0, 1),
    is_compressed=st.sampled_from([False, False, True]),
)


async def outcome(connection: Connection) -> Any:
    heard = Heard()
    context = InvocationContext(channel=heard)
    try:
        result: Any = await connection.call_tool(
            "add", {}, context=context, options=CallOptions(hands_on_questions=True)
        )
    except ServerRefusedError as error:
        result = (type(error), str(error).partition("\n")[0], error.code, error.data)
    except ServerAnswerError as error:
        result = type(error)
    except ServerError as error:
        result = (type(error), error.failure.phase)
    return result, heard.progressed


@ERAS
@given(answer=ANSWERS)
def test_every_answer_has_the_same_outcome_as_over_the_sdk(era: str, answer: Answer) -> None:
    async def both() -> tuple[Any, Any]:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with (
                raw_server(era, answer.pieces) as server,
                opened(server.config(timeout_seconds=5)) as fast,
                opened(server.config(timeout_seconds=5, fast_path=False)) as usual,
            ):
                return await outcome(fast), await outcome(usual)

    plain, sdk = anyio.run(both)
    assert plain == sdk
