"""A real uvicorn server on a free port, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import contextmanager
from contextvars import Context
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn

from bridge.hosting.serve import http_protocol
from bridge.server.http.app import BridgeApp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

DEADLINE_SECONDS = 60


class _Server(uvicorn.Server):
    """Server that announces its start, and at its end closes the streams of an app first, as ``bridge serve`` does."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self.listens = threading.Event()
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self.listens.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._is_over.wait()

    def end(self) -> None:
        """Stop it; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._is_over.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if hasattr(self._app.state, "shutdown"):
            self._app.state.shutdown()
        await super().shutdown(sockets)


@contextmanager
def serving(
    app: Starlette, *, http: Any = "h11", context: Context | None = None, access_log: bool = False
) -> Iterator[str]:
    """Serve an app in this block; yields its origin, such as ``http://127.0.0.1:4711``.

    Args:
        app: The app.
        http: As for uvicorn; ``direct`` is the protocol of ``bridge serve``.
        context: Context variables of the server; None for none.
        access_log: True to log each request.
    """
    if http == "direct":
        assert isinstance(app, BridgeApp)
        http = http_protocol(app.pre_asgi_handler(lambda: True))
    config = uvicorn.Config(app, log_config=None, ws="none", http=http, access_log=access_log)
    server = _Server(config, app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=(context or Context()).run, args=(server.run, [listener]), daemon=True)
        thread.start()
        assert server.listens.wait(DEADLINE_SECONDS)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.end()
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "the server did not end"


# --- raw requests ----------------------------------------------------------------------------------------------------

MODERN = "2026-07-28"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
CLIENT_INFO = {"name": "tests", "version": "0"}


def request(method: str, params: dict[str, Any] | None = None, request_id: Any = 1) -> dict[str, Any]:
    """Return a JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a JSON-RPC notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def call(name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a request for a call."""
    return request("tools/call", {"name": name, "arguments": arguments or {}, **more})


def initialize(capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the request that opens a session."""
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}, "clientInfo": CLIENT_INFO}
    return request("initialize", params)


def modern(message: dict[str, Any], capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a request with the envelope of the modern era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
    }
    params = message.get("params", {})
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), **meta}}}


def modern_headers(message: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a request of the modern era."""
    routing = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
    if name := message["params"].get("name") or message["params"].get("uri"):
        routing["mcp-name"] = str(name)
    return HEADERS | routing


def open_session(client: httpx.Client, url: str, capabilities: dict[str, Any] | None = None) -> dict[str, str]:
    """Open a session of the handshake era; return the headers of its requests."""
    answer = client.post(url, json=initialize(capabilities), headers=HEADERS)
    answer.raise_for_status()
    headers = HEADERS | {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    client.post(url, json=notification("notifications/initialized"), headers=headers).raise_for_status()
    return headers


def whole_client() -> httpx.Client:
    """Return a client whose requests arrive whole; only then the server starts functions before their task."""
    return httpx.Client(transport=_WholeRequests(), timeout=DEADLINE_SECONDS)


@contextmanager
def posted(url: str, message: dict[str, Any], headers: dict[str, str]) -> Iterator[socket.socket]:
    """Send a message in one write, on a connection that is closed at the end of the block."""
    with _sent(httpx.Request("POST", url, json=message, headers=headers)) as connection:
        yield connection


def received(connection: socket.socket) -> Any:
    """Return the JSON of the response to a request that was `posted`."""
    response = HTTPResponse(connection, method="POST")
    response.begin()
    return json.loads(response.read())


def _sent(request: httpx.Request) -> socket.socket:
    connection = socket.create_connection((request.url.host, request.url.port or 80), DEADLINE_SECONDS)
    first = f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"
    lines = [first, *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]
    connection.sendall("\r\n".join(lines).encode() + request.read())
    return connection


class _WholeRequests(httpx.BaseTransport):
    """Sends each request in one write, on a connection of its own."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        connection = _sent(request)
        response = HTTPResponse(connection, method=request.method)
        response.begin()
        return httpx.Response(response.status, headers=response.getheaders(), stream=_Body(connection, response))


class _Body(httpx.SyncByteStream):
    def __init__(self, connection: socket.socket, response: HTTPResponse) -> None:
        self._connection, self._response = connection, response

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self._response.read1(65_536), b"")

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON-RPC messages of an event stream as they arrive."""
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {"))


def answer(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON-RPC message of a response: its JSON, or the last event of its stream."""
    if response.headers["content-type"].startswith("text/event-stream"):
        *_, last = events(iter(response.text.splitlines()))
        return last
    found: dict[str, Any] = response.json()
    return found
