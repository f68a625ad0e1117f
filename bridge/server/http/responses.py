"""JSON responses and JSON-RPC errors over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    """Answer with an HTTP status and a JSON-RPC error that belongs to no request.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        message: What is wrong, for the client.
        code: The error's code.
        retry_after_seconds: When trying again may help; None where it will not.
        limit: Which limit was reached, if it was one.
    """
    data = {"limit": limit, "retryAfterSeconds": retry_after_seconds}
    told = {key: value for key, value in data.items() if value is not None}
    error: dict[str, Any] = {"code": code, "message": message} | ({"data": told} if told else {})
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [] if retry_after_seconds is None else [(b"retry-after", b"%d" % retry_after_seconds)]
    await send_counted_error(send, status, body, headers)


@dataclass(slots=True)
class PlainResponse:
    """The whole answer to a request; nobody changes it."""

    body: bytes
    status: int = 200
    session_id: str | None = None
    """The session that it is given in; None in the modern era."""


class PendingCall(Protocol):
    """A call that was proven plain, and is still to be run."""

    ends_with_client: bool
    """Whether it is cancelled when the client closes the request."""

    async def run(self) -> PlainResponse:
        """Run it, once; never raises but to be cancelled."""
        ...


async def send_json(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), *, is_head: bool = False
) -> None:
    """Answer a request.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        body: The JSON.
        headers: What is said beside its type and its length.
        is_head: Only the head was asked for.
    """
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [CONTENT_TYPE, length, *headers]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def send_counted_error(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer a request that gets no further, which an observer counts.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        body: The JSON.
        headers: What is said beside its type and its length.
    """
    if (observer := switch.observer()) is not None:
        observer.refused(status)
    await send_json(send, status, body, headers)
