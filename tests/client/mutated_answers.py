"""Answers to calls over HTTP, mutated in status, headers, framing, events and messages, and their outcomes.

The bytes of a head are not spoiled: llhttp refuses control characters and bare line feeds there, which h11 accepts.
"""

from __future__ import annotations

import gzip
import json
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import anyio
from pydantic_core import from_json

from bridge.client.connection.connection import Connection
from bridge.client.connection.running_call import CallOptions
from bridge.errors import ServerAnswerError, ServerError, ServerRefusedError
from bridge.protocol import peer
from bridge.tools.context import InvocationContext
from bridge.wire.tools import ReceivedResult
from tests.client.http_client import sent_by
from tests.client.raw_http import DONE, Heard, event, json_of, progress, raw_server, response, stream
from tests.server.stdio_mutations import spoil_text, spoil_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json
    from tests.client.raw_http import RawServer, Request

FIRST_ID = 10**9
"""ID of the first request of a session: all have as many digits, so that responses differ in nothing else."""
CALL_SECONDS = 3
DEADLINE_SECONDS = 60

RESULTS: list[Any] = [
    DONE,
    {**DONE, "structuredContent": {"a": [1, None]}, "_meta": {"x": 1}},
    {**DONE, "isError": True},
    {**DONE, "unknown": 1, "ttlMs": -5},
    {"content": "no list"},
    {"content": [{"type": "nonsense"}]},
    {},
    {"resultType": "input_required", "requestState": "s", "inputRequests": {}},
    {"content": [{"type": "text", "text": "x" * 300_000}]},
]
ERRORS: list[Any] = [
    {"code": -32602, "message": "no such tool", "data": [1]},
    {"code": "x", "message": "bad"},
    {"code": 1},
    None,
]
BODIES: list[Any] = [*({"result": each} for each in RESULTS), *({"error": each} for each in ERRORS)]
TEXTS = [b"", b"null", b"[]", b"{", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'"text"']
STATUSES = [201, 202, 204, 206, 301, 307, 308, 400, 401, 402, 403, 404, 405, 406, 409, 410, 421, 429, 500, 502, 503]
MEDIA = [
    *("application/json", "text/event-stream", "Application/JSON; charset=utf-8", "text/event-stream;charset=latin-1"),
    *("text/html", ""),
]
HEADERS = [
    *("Connection: close", "Retry-After: 0", "Mcp-Session-Id: other", "Content-Type: text/plain"),
    *("Content-Encoding: identity", "Content-Encoding: br", "WWW-Authenticate: Bearer", "X-Long: " + "x" * 3000),
]
LOCATIONS = ["/moved", "http://127.0.0.1:1/", ""]
LENGTHS = {"length": 0, "longer": 9, "shorter": -9}
FRAMINGS = [*LENGTHS, "length", "chunked", "chunked", "close", "HTTP/1.0"]
ASIDES: list[Json] = [
    {"method": "notifications/message", "params": {"level": "info", "data": "half"}},
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/unheard_of"},
    {"id": "s1", "method": "ping"},
    {"id": "s2", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}},
    {"id": 7, "result": DONE},
    {"id": None, "error": {"code": -32600, "message": "no"}},
]
PROGRESS = {"progress": 1, "huge": 10**400, "foreign": 1, "more": 2}  # no float can represent the huge one
EVENT_LINES = [b": ping", b"id: e1\nretry: 1", b"event: message", b"event: other", b"retry: 1", b"unknown: x", b"data"]


class Answer(NamedTuple):
    """An answer of a server; its pieces depend on the request only by its IDs."""

    status: int
    media: str
    headers: list[str]
    framing: str
    body: Any
    """Message without ID, or text."""
    spoiled: int | None
    """Seed of the mutations of the message; None for none."""
    asides: list[Any]
    """Names of progress, and messages, before the response in an event stream."""
    later: list[Any]
    """The same after the response."""
    lines: list[bytes]
    """Further lines of the first event."""
    newline: str
    layout: str
    """Form of JSON: ``python`` and ``typescript`` as of the official SDKs, ``spaced``, or in several ``lines``."""
    size: int
    kept: float | None
    """Part that is sent before the connection is closed; None for all."""
    is_compressed: bool

    @classmethod
    def of(cls, random: Random) -> Answer:
        """Make an answer; each unusual trait is rare, so that many answers have one or two."""

        def rarely(share: float, unusual: Any, usual: Any) -> Any:
            return random.choice(unusual) if random.random() < share else usual

        is_stream = random.random() < 0.6
        sides: list[Any] = [*PROGRESS, *ASIDES]
        media = "text/event-stream" if is_stream else "application/json"
        status = rarely(0.25, STATUSES, 200)
        headers = random.sample(HEADERS, rarely(0.2, [1, 2], 0))
        if status in range(300, 400):
            headers.append(f"Location: {random.choice(LOCATIONS)}")
        return cls(
            status=status,
            media=rarely(0.15, MEDIA, media),
            headers=headers,
            framing=random.choice(FRAMINGS),
            body=rarely(0.4, [*BODIES, *TEXTS], {"result": DONE}),
            spoiled=rarely(0.35, range(2**32), None),
            asides=random.choices(sides, k=rarely(0.5, [1, 2, 3], 0)),
            later=random.choices(sides, k=rarely(0.1, [1, 2], 0)),
            lines=random.sample(EVENT_LINES, rarely(0.3, [1, 2], 0)),
            newline=random.choice(["\n", "\r\n", "\r"]),
            layout=random.choice(["python", "python", "typescript", "spaced", "lines"]),
            size=random.choice([1, 2, 7, 50, 200, 5000]),
            kept=rarely(0.2, [random.random()], None),
            is_compressed=rarely(0.15, [True], False),
        )

    def pieces(self, request: Request) -> list[bytes | None]:
        """The pieces of the answer to a request; a request that follows a redirect or resumes a stream is answered."""
        if request.method == "GET":
            return stream(event(response(request.headers["last-event-id"], DONE)))
        if request.path == "/moved":
            return [json_of(request.call_id, DONE)]
        head, body = self._head_and_body(self._text(request))
        if self.kept is not None:
            # llhttp ends the headers at their last carriage return, h11 at the line feed behind it.
            head_bytes, body_bytes = min(1, 2 * self.kept) * len(head), max(0.0, 2 * self.kept - 1) * len(body)
            head, body = head[: int(head_bytes)].removesuffix(b"\r"), body[: int(body_bytes)]
        whole = head + body
        parts = [whole[place : place + self.size] for place in range(0, min(len(whole), 1000), self.size)]
        return [*parts, whole[len(parts) * self.size :], *([None] if self._ends else [])]

    @property
    def _ends(self) -> bool:
        """True if the connection is closed after the answer."""
        return self.kept is not None or self.framing not in {"length", "chunked"}

    def _head_and_body(self, text: bytes) -> tuple[bytes, bytes]:
        lines = [f"Content-Type: {self.media}"] if self.media else []
        lines = [*lines, *self.headers] if self.size % 2 else [*self.headers, *lines]
        if self.is_compressed:
            text = gzip.compress(text, 0, mtime=0)
            lines.append("Content-Encoding: gzip")
        if self._ends:  # no call may use the connection meanwhile
            lines.append("Connection: close")
        has_body = self.status != 204
        if has_body and self.framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
            size = max(3 * self.size, len(text) // 1000)
            chunks = [text[place : place + size] for place in range(0, len(text), size)]
            text = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        elif has_body and self.framing in LENGTHS:
            lines.append(f"Content-Length: {max(0, len(text) + LENGTHS[self.framing])}")
        version = "1.0" if self.framing == "HTTP/1.0" else "1.1"
        return "\r\n".join([f"HTTP/{version} {self.status} X", *lines, "", ""]).encode(), text if has_body else b""

    def _text(self, request: Request) -> bytes:
        text = self.body if isinstance(self.body, bytes) else self._json(request, {"id": "@id", **self.body})
        if "event" not in self.media:
            return text
        before, after = ([self._side(request, each) for each in sides] for sides in (self.asides, self.later))
        events = [[b"data: " + line for line in each.split(b"\n")] for each in (*before, text, *after) if each.strip()]
        if events:
            events[0] = [*self.lines, *events[0]]
        newline = self.newline.encode()
        return b"".join(newline.join([*lines, b"", b""]) for lines in events)

    def _side(self, request: Request, side: Any) -> bytes:
        if not isinstance(side, str):
            return self._json(request, side)
        token = "else" if side == "foreign" else "@token"
        return _with_ids(json.dumps(progress(token, PROGRESS[side])).encode(), request)

    def _json(self, request: Request, message: Json) -> bytes:
        message = deepcopy({"jsonrpc": "2.0", **message})
        if self.layout == "typescript":
            message = dict(sorted(message.items(), key=lambda item: item[0] in {"jsonrpc", "id"}))
        random = Random(self.spoiled)
        if self.spoiled is not None:
            spoil_value(random, message)
        text = json.dumps(
            message,
            indent=1 if self.layout == "lines" else None,
            separators=(",", ":") if self.layout in {"python", "typescript"} else None,
            ensure_ascii=random.random() < 0.5,
        )
        raw = text.encode("utf-8", "surrogatepass")
        raw = spoil_text(random, raw) if self.spoiled is not None and random.random() < 0.3 else raw
        return _with_ids(raw, request)


def _with_ids(text: bytes, request: Request) -> bytes:
    """Text with the request's IDs."""
    assert request.call_id >= FIRST_ID
    return text.replace(b'"@id"', b"%d" % request.call_id).replace(b'"@token"', b"%d" % request.token)


class Outcome(NamedTuple):
    """Outcome of a call."""

    result: Any
    """Result, and the result that a gateway passes on; or the error's type and details."""
    progressed: list[Any]
    logged: list[Any]
    sent: int
    """Number of times that it was sent."""
    next_result: Any
    """Result of the next call, whose response is correct."""


class Pair:
    """Connections to one server, over own HTTP connections and by the HTTP client; both stay open while usable."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.opened = 0
        """Number of times that they were opened."""
        self._headers = headers
        self._server: RawServer
        self._connections: list[Connection] = []
        self._stack = AsyncExitStack()
        self._answer: Answer | None = None

    @classmethod
    @asynccontextmanager
    async def serving(cls, era: str, **headers: str) -> AsyncIterator[Pair]:
        """Serve in an era, ``legacy`` or the modern version; with ``Authorization`` among them, no login is used."""
        pair = cls(headers)
        with patch.object(peer, "count", lambda _: count(FIRST_ID)):
            async with raw_server(era, pair._pieces) as pair._server, pair._stack:
                yield pair

    async def outcomes(self, answer: Answer) -> tuple[Outcome, Outcome]:
        """Outcomes of a call with this response: over an own connection, and by the HTTP client."""
        with anyio.fail_after(DEADLINE_SECONDS):
            if not self._connections:
                await self._open()
            own, by_client = [await self._outcome(connection, answer) for connection in self._connections]
            results = own.next_result[0], by_client.next_result[0]
            if not (all(isinstance(each, dict) for each in results) and is_direct(self._connections[0])):
                self._connections.clear()
                await self._stack.aclose()
        return own, by_client

    async def _open(self) -> None:
        self.opened += 1
        for own in (True, False):
            config = self._server.config(timeout_seconds=CALL_SECONDS)
            config = sent_by(replace(config, transport=config.transport.with_headers(self._headers)), own=own)
            connection = await self._stack.enter_async_context(Connection(config))
            assert is_direct(connection) is own
            self._connections.append(connection)

    def _pieces(self, request: Request) -> list[bytes | None]:
        return [json_of(request.call_id, DONE)] if self._answer is None else self._answer.pieces(request)

    async def _outcome(self, connection: Connection, answer: Answer) -> Outcome:
        self._server.requests.clear()
        self._answer, heard = answer, Heard()
        result = await _result(connection, heard)
        ids = {each.call_id for each in self._server.calls}  # after a redirect, the same request is sent again
        self._answer = None
        next_result = await _result(connection, Heard())
        return Outcome(result, heard.progressed, heard.logged, len(ids), next_result)


def is_direct(connection: Connection) -> bool:
    """Return True if requests are sent over own connections."""
    session = connection._last_session
    return session is not None and bool(getattr(session.link, "_is_direct", False))


async def _result(connection: Connection, heard: Heard) -> Any:
    context = InvocationContext(channel=heard)
    options = CallOptions(hands_on_questions=True)
    try:
        result = await connection.call_tool("add", {}, context=context, options=options)
    except ServerRefusedError as error:
        return type(error), str(error).partition("\n")[0], error.code, error.data
    except ServerAnswerError as error:
        return (type(error),)
    except ServerError as error:
        return type(error), error.failure.phase
    return dict(result), from_json(ReceivedResult.of(result).passed_on().written())
