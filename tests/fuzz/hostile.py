"""``python -m tests.fuzz.hostile TRANSPORT ERA FLAG``: a server with malformed responses unless the file FLAG exists.

Over HTTP it writes its port first. The responses to calls of the tool ``fuzz`` are always malformed, others sometimes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import h11

from tests.server.stdio_mutations import spoil_text, spoil_value

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
TEXT = {"type": "text", "text": "x" * 50}
RESULTS: list[dict[str, Any]] = [
    {"content": [TEXT]},
    {"content": [TEXT], "structuredContent": {"result": 1}, "isError": False},
    {
        "content": [
            {"type": "image", "data": "AAE=", "mimeType": "image/png"},
            {"type": "audio", "data": "!", "mimeType": ""},
        ]
    },
    {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}, {"type": "resource_link", "uri": "x"}]},
    {"content": [], "isError": True, "_meta": {"a": [1, None]}},
    {"resultType": "input_required", "requestState": "s", "inputRequests": {"q": {"method": "roots/list"}}},
    {"content": [{"type": "text", "text": "y" * 300_000}]},
    {"content": [], "own": [[]] * 100_000},
]
ASIDES: list[dict[str, Any]] = [
    {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1, "total": 2, "message": "m"}},
    {"method": "notifications/message", "params": {"level": "info", "data": {"a": 1}, "logger": "l"}},
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/cancelled", "params": {"requestId": 1}},
    {"id": "s1", "method": "ping"},
    {"id": "s2", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}},
    {"id": 3, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    {"id": 7, "result": {"content": [TEXT]}},
    {"id": "x", "error": {"code": -32000, "message": "no", "data": "\x1b[31m"}},
]
HEADERS = [
    "Content-Encoding: gzip",
    "Content-Type: text/html",
    "Mcp-Session-Id: other",
    "WWW-Authenticate: Basic realm=x",
    "Location: /mcp",
    "Location: http://127.0.0.1:1/",
    "Connection: close",
    "Retry-After: 0",
    "X-Long: " + "x" * 20_000,
]
STATUSES = [200, 200, 201, 202, 204, 301, 307, 400, 402, 404, 405, 406, 410, 429, 500, 502, 503, 99, 600]
ENDLESS_BYTES = 2 * 1024 * 1024


class Hostile:
    """Responses of the server.

    Args:
        era: ``modern`` or ``handshake``.
        flag: File that exists while the server has to behave well.
    """

    def __init__(self, era: str, flag: Path) -> None:
        self._is_modern = era == "modern"
        self._flag = flag
        self._random = Random(20260728)
        self._lists = 0

    def dice(self, message: Any) -> Random | None:
        """Return random numbers for a malformed response; None for a correct one."""
        if self._flag.exists():
            return None
        if message.get("method") == "tools/call" and message["params"]["name"] == "fuzz":
            return Random(message["params"]["arguments"]["seed"])
        return self._random if self._random.random() < 0.1 else None

    def messages(self, message: Any, random: Random | None) -> list[bytes]:
        """Return the messages that answer one; for a request, the last is the response."""
        if "id" not in message or "method" not in message:
            return []
        answer = {"jsonrpc": "2.0", "id": message["id"], **self._answer(message, random)}
        if random is None:
            return [json.dumps(answer).encode()]
        asides = [{"jsonrpc": "2.0", **deepcopy(random.choice(ASIDES))} for _ in range(random.choice([0, 0, 1, 3]))]
        texts = []
        for each in [*asides, answer]:
            for _ in range(random.randrange(3)):
                spoil_value(random, each)
            text = json.dumps(each, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
            if random.random() < 0.2 and len(text) > 1:
                text = spoil_text(random, text)
            texts.append(text)
        return texts

    def _answer(  # noqa: PLR0911 - one for each method
        self, message: Any, random: Random | None
    ) -> dict[str, Any]:
        told = {
            "capabilities": {"tools": {"listChanged": True}, "resources": {}},
            "serverInfo": {"name": "h", "version": ""},
        }
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self._is_modern else {}
        match message["method"]:
            case "initialize" if not self._is_modern:
                return {"result": {"protocolVersion": LEGACY, **told}}
            case "server/discover" if self._is_modern:
                return {"result": {"supportedVersions": [MODERN], **told, **more}}
            case "tools/list":
                return {"result": {"tools": self._tools(random), **more}}
            case "tools/call" if message["params"]["name"] == "add":
                return {"result": {"content": [{"type": "text", "text": "42"}], **more}}
            case "tools/call":
                if random is not None and random.random() < 0.1:
                    return {"error": {"code": random.choice([-32601, -32602, -32020, 1, 10**30]), "message": "no"}}
                return {"result": {**more, **deepcopy((random or self._random).choice(RESULTS))}}
            case "ping" if not self._is_modern:
                return {"result": {}}
            case "resources/list":
                return {"result": {"resources": [{"uri": "a:b", "name": "n"}], **more}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}

    def _tools(self, random: Random | None) -> list[Any]:
        schema = {"type": "object", "properties": {"seed": {"type": "integer"}}}
        tools: list[Any] = [{"name": name, "inputSchema": schema} for name in ("add", "fuzz")]
        if random is not None:
            self._lists += 1
            bad: list[Any] = [None, {"name": ""}, {"name": "add"}, {"name": "x" * 10_000, "inputSchema": schema}]
            bad += [{"name": f"new{self._lists}", "inputSchema": schema, "outputSchema": {"$ref": "#/$defs/a"}}]
            tools += random.sample(bad, random.randrange(len(bad)))
        return tools


def pieces(random: Random, raw: bytes) -> list[bytes]:
    """Split bytes at random positions."""
    cuts = sorted(random.randint(0, len(raw)) for _ in range(random.choice([0, 1, 2, 10])))
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


def as_events(random: Random | None, texts: list[bytes]) -> bytes:
    """Return the messages as events."""
    if random is None:
        return b"".join(b"data: " + text + b"\n\n" for text in texts)
    raw = b""
    for text in texts:
        end = random.choice([b"\n", b"\n", b"\r\n", b"\r"])
        lines = random.sample(
            [b": hm", b"id: 7", b"retry: 1", b"event: other", b"event: message", b"\xff"], random.choice([0, 1, 3])
        )
        raw += end.join([*lines, *(b"data:" + line for line in text.split(b"\n")), b"", b""])
    return raw


def framed(random: Random | None, texts: list[bytes], session: str) -> tuple[list[bytes], bool]:
    """Return a response in the pieces in which it is sent, and True if the connection stays open."""
    common = f"Mcp-Session-Id: {session}\r\n" if session else ""
    if random is None:
        body = texts[-1] if texts else b""
        status = "200 OK" if texts else "202 Accepted"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{common}Content-Length: {len(body)}\r\n\r\n"
        return [head.encode() + body], True
    code = random.choice(STATUSES) if random.random() < 0.3 else 200
    is_stream = random.random() < 0.6
    body = as_events(random, texts) if is_stream else (texts or [b""])[-1]
    kind = "text/event-stream" if is_stream else "application/json"
    more = "".join(line + "\r\n" for line in random.sample(HEADERS, random.choice([0, 0, 0, 1, 2])))
    head = f"HTTP/1.1 {code} So\r\n{common}{more}Content-Type: {kind}\r\n"
    match random.randrange(12):
        case 0:  # half a body
            raw = f"{head}Content-Length: {len(body) + 10}\r\n\r\n".encode() + body[: random.randint(0, len(body))]
        case 1:  # endless
            raw = f"{head}\r\n".encode() + (body + b"\n") * (ENDLESS_BYTES // (len(body) + 1))
        case 2:
            raw = spoil_text(random, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        case 3:
            raw = b""
        case 4:  # gzip
            packed = zlib.compressobj(wbits=31)
            zipped = packed.compress(body) + packed.flush()
            raw = f"{head}Content-Encoding: gzip\r\nContent-Length: {len(zipped)}\r\n\r\n".encode() + zipped
        case 5:
            raw = f"{head}\r\n".encode() + body
        case 6 | 7:
            chunks = b"".join(b"%x\r\n" % len(each) + each + b"\r\n" for each in pieces(random, body) if each)
            raw = (
                f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
                + chunks
                + random.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"zz"])
            )
        case _:
            raw = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return pieces(random, raw), False


class HttpServer:
    """Handles connections of streamable HTTP and SSE."""

    def __init__(self, hostile: Hostile, session: str) -> None:
        self._hostile = hostile
        self._session = session
        self._events: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            goes_on = True
            while goes_on:
                connection = h11.Connection(h11.SERVER)
                request, body = None, b""
                while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                    if event is h11.NEED_DATA:
                        if not (data := await reader.read(65536)):
                            return
                        connection.receive_data(data)
                    elif isinstance(event, h11.Request):
                        request = event
                    elif isinstance(event, h11.Data):
                        body += event.data
                assert request is not None
                goes_on = await self._answer(reader, writer, request, body)
        except (OSError, h11.ProtocolError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: h11.Request, body: bytes
    ) -> bool:
        if request.method == b"GET" and request.target == b"/sse":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            random = self._hostile.dice({})
            place = b"event: endpoint\ndata: /messages\n\n"
            writer.write(head + (place if random is None else spoil_text(random, place)))
            await writer.drain()
            self._events = writer
            await reader.read()
            return False
        if request.method != b"POST":
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return True
        message = json.loads(body)
        random = self._hostile.dice(message)
        texts = self._hostile.messages(message, random)
        if request.target == b"/messages":
            if random is None or random.random() < 0.9:
                await self._tell(random, texts)
            elif self._events is not None:
                self._events.close()
            random = random if random is not None and random.random() < 0.2 else None
            texts = []
        for piece in (answer := framed(random, texts, self._session))[0]:
            writer.write(piece)
            await writer.drain()
        return answer[1]

    async def _tell(self, random: Random | None, texts: list[bytes]) -> None:
        if (events := self._events) is None or events.is_closing():
            return
        raw = as_events(random, texts)
        for piece in [raw] if random is None else pieces(random, raw):
            events.write(piece)
            await events.drain()


async def over_http(hostile: Hostile, era: str) -> None:
    """Serve until the process is killed."""
    http = HttpServer(hostile, "" if era == "modern" else "session")
    server = await asyncio.start_server(http.serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def over_stdio(hostile: Hostile) -> None:
    """Serve until the input ends, or for a shorter time."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        random = hostile.dice(message)
        raw = b"".join(text + b"\n" for text in hostile.messages(message, random))
        for piece in [raw] if random is None else pieces(random, raw):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        if random is not None:
            match random.randrange(100):
                case 0:
                    sys.exit(3)
                case 1:
                    sys.stderr.write("\x1b[31m" + "e" * 10_000)
                case 2:
                    sys.stdout.buffer.write(b"noise\n" * 1000)


if __name__ == "__main__":
    transport, the_era, the_flag = sys.argv[1:]
    if transport == "stdio":
        over_stdio(Hostile(the_era, Path(the_flag)))
    else:
        asyncio.run(over_http(Hostile(the_era, Path(the_flag)), the_era))
