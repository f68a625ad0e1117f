"""JSON responses and JSON-RPC errors over HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.protocol.versions import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
)
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send

CONTENT_TYPE = (b"content-type", b"application/json")
HTTP_STATUS = {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400, HEADER_MISMATCH: 400, MISSING_CAPABILITY: 400}
"""HTTP status of errors by code, in the modern era; all others have 200."""
NO_STORE = (b"cache-control", b"no-store")


async def send_error(
    send: Send,
    status: int,
    message: str,
    code: int = INVALID_REQUEST,
    *,
    retry_after_seconds: int | None = None,
    limit: str | None = None,
) -> None:
    """Answer with an HTTP status and a JSON-RPC error without an id.

    Args:
        send: Sends the response.
        status: HTTP status.
        message: Message of the error.
        code: Code of the error.
        retry_after_seconds: Seconds after which the client may try again; None if it should not.
        limit: Name of the limit that was reached, if any.
    """
    found = {"limit": limit, "retryAfterSeconds": retry_after_seconds}
    data = {key: value for key, value in found.items() if value is not None}
    error: dict[str, Any] = {"code": code, "message": message} | ({"data": data} if data else {})
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [] if retry_after_seconds is None else [(b"retry-after", b"%d" % retry_after_seconds)]
    await send_counted_error(send, status, body, headers)


@dataclass(slots=True)
class PlainResponse:
    """The complete response to a plain request, or the rest of one."""

    body: bytes
    status: int = 200
    session_id: str | None = None
    """Id of its session; None in the modern era."""
    is_rest: bool = False
    """True for the rest of a response that has begun; it would be broken off by any other."""


class AsgiBody:
    """Body of a response that is sent in parts through ASGI: a `bridge.server.contents_stream.ResponseBody`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_started = False
        self.session_id: str | None = None
        self.begun = asyncio.Event()
        """Set once the response has begun."""

    def begin(self) -> None:
        """Begin the response."""
        self.begun.set()

    async def write(self, part: bytes) -> None:
        """Send a part; the server waits while the client does not read."""
        if not self._is_started:
            self._is_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": headers_of(self.session_id)})
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self, answer: PlainResponse) -> None:
        """Send the rest; without it, the server closes the connection of a response that is not complete."""
        if answer.is_rest:
            await self._send({"type": "http.response.body", "body": answer.body})


def headers_of(session_id: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with JSON, without its length."""
    return [CONTENT_TYPE] if session_id is None else [CONTENT_TYPE, (b"mcp-session-id", session_id.encode())]


async def send_json(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), *, is_head: bool = False
) -> None:
    """Answer a request with JSON.

    Args:
        send: Sends the response.
        status: HTTP status.
        body: The JSON.
        headers: Further headers.
        is_head: True for a HEAD request, whose response has no body.
    """
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [CONTENT_TYPE, length, *headers]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def send_counted_error(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer a refused request as `send_json`, and count it in the metrics."""
    if (observer := switch.observer()) is not None:
        observer.refused(status)
    await send_json(send, status, body, headers)
