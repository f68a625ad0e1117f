"""An MCP server over HTTP that answers calls with given bytes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.client import HttpTransport, ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge.types import Json

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"


class Request(NamedTuple):
    """One HTTP request."""

    method: str
    headers: dict[str, str]
    message: Json

    @property
    def call_id(self) -> Any:
        """ID of the message."""
        return self.message["id"]

    @property
    def token(self) -> Any:
        """Progress token of the message."""
        return self.message["params"]["_meta"]["progressToken"]


class RawServer:
    """Answers the handshake, and each call as the test says.

    Args:
        era: ``legacy``, with a session, or the modern version.
        answer: Returns the bytes that answer a call or a GET, in the pieces that they are sent in. The connection is
            closed after a piece that is None.

    Attributes:
        requests: All requests, in order.
        connections: Number of connections that were opened.
    """

    def __init__(self, era: str, answer: Callable[[Request], list[bytes | None]]) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self._is_modern = era == MODERN
        self._era = era
        self._answer = answer

    def config(self, **settings: Any) -> ServerConfig:
        """Configuration of this server."""
        transport = HttpTransport(f"http://127.0.0.1:{self.port}/mcp", kind="http", headers={"X-Key": "key"})
        protocol: Any = self._era
        return ServerConfig(name="raw", transport=transport, protocol=protocol, **settings)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                for piece in self._pieces(request):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _pieces(self, request: Request) -> list[bytes | None]:
        method = request.message.get("method")
        if method == "tools/call" or (request.method == "GET" and "last-event-id" in request.headers):
            return self._answer(request)
        if request.method != "POST":
            return [http(405, b"")]
        if method is None or "id" not in request.message:
            return [http(202, b"")]
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
        if method == "initialize":
            result: Json = {"protocolVersion": HANDSHAKE, **told}
        elif method == "server/discover":
            result = {"supportedVersions": [MODERN], "resultType": "complete", "ttlMs": 0, **told}
            result["cacheScope"] = "private"
        else:
            result = {}
        return [json_of(request.call_id, result, headers={"Mcp-Session-Id": "s"} if method == "initialize" else {})]


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    return Request(line.split()[0], headers, json.loads(body) if body else {})


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
async def raw_server(era: str, answer: Callable[[Request], list[bytes | None]]) -> AsyncIterator[RawServer]:
    """Serve on a free port."""
    made = RawServer(era, answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
