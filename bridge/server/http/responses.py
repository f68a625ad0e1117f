"""JSON responses and JSON-RPC errors over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.server.protocol import INVALID_REQUEST
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send

CONTENT_TYPE = (b"content-type", b"application/json")
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
    """The complete response to a plain request."""

    body: bytes
    status: int = 200
    session_id: str | None = None
    """Id of its session; None in the modern era."""


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
