"""An MCP server over HTTP that answers calls with given bytes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import anyio

from bridge.client import HttpTransport, ServerConfig
from bridge.tools.channel import Channel
from tests.client.conftest import opened as opened_at_all

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.client.connection.connection import Connection
    from bridge.types import Json

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"


_LISTED = {"resources/list": "resources", "resources/templates/list": "resourceTemplates"}


class Request(NamedTuple):
    """One HTTP request, and the number of its connection."""

    method: str
    path: str
    headers: dict[str, str]
    message: Json
    connection: int

    @property
    def call_id(self) -> Any:
        """ID of the message."""
        return self.message["id"]

    @property
    def token(self) -> Any:
        """Progress token of the message."""
        return self.message["params"]["_meta"]["progressToken"]


Answer: TypeAlias = "Callable[[Request], Sequence[bytes | asyncio.Event | None]]"


class RawServer:
    """Answers the handshake, and each call as the test specifies.

    Args:
        era: ``legacy``, with a session, or the modern version.
        answer: Returns the bytes that answer a call, a read or a GET, in the pieces in which they are sent. The
            connection is closed after a piece that is None. An event among them is awaited.
        feature: Its feature, ``tools`` or ``resources``.

    Attributes:
        requests: All requests, in order.
        open: Number of open connections.
        sent_bytes: Number of sent bytes.
        lost: Set once the client has closed a connection during an answer.
    """

    def __init__(self, era: str, answer: Answer, *, scheme: str = "http", feature: str = "tools") -> None:
        self._feature = feature
        self.requests: list[Request] = []
        self.open = 0
        self.sent_bytes = 0
        self.lost = asyncio.Event()
        self.port = 0
        self._is_modern = era == MODERN
        self._era = era
        self._answer = answer
        self._scheme = scheme
        self._connections = count()

    @property
    def calls(self) -> list[Request]:
        """Calls of tools, in order."""
        return [each for each in self.requests if each.message.get("method") == "tools/call"]

    def config(self, **settings: Any) -> ServerConfig:
        """Configuration of this server."""
        transport = HttpTransport(f"{self._scheme}://localhost:{self.port}/mcp", kind="http", headers={"X-Key": "key"})
        protocol: Any = self._era
        return ServerConfig(name="raw", transport=transport, protocol=protocol, **settings)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        connection = next(self._connections)
        self.open += 1
        try:
            while (request := await _read(reader, connection)) is not None:
                self.requests.append(request)
                for piece in self._pieces(request):
                    if piece is None:
                        return
                    if isinstance(piece, asyncio.Event):
                        await self._wait(piece, reader)
                        continue
                    writer.write(piece)
                    await writer.drain()
                    self.sent_bytes += len(piece)
                    await asyncio.sleep(0)
        except ConnectionError:
            self.lost.set()
        finally:
            writer.close()
            self.open -= 1

    async def _wait(self, event: asyncio.Event, reader: asyncio.StreamReader) -> None:
        """Wait for an event, or until the client has closed the connection.

        Raises:
            ConnectionError: It has.
        """
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(reader.read(1))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        if not event.is_set():
            raise ConnectionError

    def _pieces(self, request: Request) -> Sequence[bytes | asyncio.Event | None]:
        method = request.message.get("method")
        is_resumed = request.method == "GET" and "last-event-id" in request.headers
        if method in {"tools/call", "resources/read", "tasks/get"} or is_resumed:
            return self._answer(request)
        if request.method != "POST":
            return [http(405, b"")]
        if method is None or "id" not in request.message:
            return [http(202, b"")]
        told = {"capabilities": {self._feature: {}}, "serverInfo": {"name": "raw", "version": "1"}}
        if method == "initialize":
            result: Json = {"protocolVersion": HANDSHAKE, **told}
        elif method == "server/discover":
            result = {"supportedVersions": [MODERN], "resultType": "complete", "ttlMs": 0, **told}
            result["cacheScope"] = "private"
        else:
            result = {}
            if (listed := _LISTED.get(method)) is not None:
                result = {listed: [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return [json_of(request.call_id, result, headers={"Mcp-Session-Id": "s"} if method == "initialize" else {})]


async def _read(reader: asyncio.StreamReader, connection: int) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = line.split()
    return Request(method, path, headers, json.loads(body) if body else {}, connection)


def http(status: int, body: bytes, **headers: str) -> bytes:
    """An HTTP response with a length."""
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


def json_of(call_id: Any, result: Json, *, headers: dict[str, str] | None = None) -> bytes:
    """An HTTP response with a result."""
    text = json.dumps({"jsonrpc": "2.0", "id": call_id, "result": result}).encode()
    return http(200, text, Content_Type="application/json", **(headers or {}))


@asynccontextmanager
async def raw_server(
    era: str, answer: Answer, *, tls: ssl.SSLContext | None = None, feature: str = "tools"
) -> AsyncIterator[RawServer]:
    """Serve on a free port."""
    made = RawServer(era, answer, scheme="http" if tls is None else "https", feature=feature)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


DONE: Json = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}


def event(message: Any, *, newline: str = "\n", **fields: str) -> bytes:
    lines = [*(f"{name}: {value}" for name, value in fields.items()), f"data: {json.dumps(message) if message else ''}"]
    return (newline.join(lines) + newline * 2).encode()


def response(call_id: Any, result: Any) -> Json:
    return {"jsonrpc": "2.0", "id": call_id, "result": result}


def progress(token: Any, value: float) -> Json:
    params = {"progressToken": token, "progress": value, "total": 2, "message": "on"}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def stream(*events: bytes | None, chunked: bool = True) -> list[bytes | None]:
    """An event stream; it is cut off before an event that is None."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    if not chunked:
        return [head + b"\r\n", *events, None]
    pieces = [each and b"%x\r\n%b\r\n" % (len(each), each) for each in events]
    if pieces[-1] is not None:
        pieces[-1] += b"0\r\n\r\n"
    return [head + b"Transfer-Encoding: chunked\r\n\r\n", *pieces]


class Heard(Channel):
    """A channel that records its messages."""

    def __init__(self) -> None:
        self.progressed: list[tuple[float, float | None, str | None]] = []
        self.logged: list[Any] = []
        self.has_logged = anyio.Event()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progressed.append((progress, total, message))

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        self.logged.append(data)
        self.has_logged.set()


@asynccontextmanager
async def opened(config: ServerConfig) -> AsyncIterator[Connection]:
    """A connection that has sent a request, and sends calls over own HTTP connections."""
    async with opened_at_all(config) as connection:
        await connection.request("ping")
        yield connection
